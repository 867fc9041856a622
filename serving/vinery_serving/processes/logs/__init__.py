"""Logs of processes: the format of a line, files that rotate, and readers of both."""
