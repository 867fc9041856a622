"""Runs a prepared request on an engine, and reads its output."""
