"""Parses and prepares a request's body: in the web process if that is quick, else in a worker
process."""
