"""The way of a request: render, prepare, run on an engine, and read its output."""
