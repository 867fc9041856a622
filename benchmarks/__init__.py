"""Measures this server beside the bare engine. Run it with `python -m benchmarks`."""
