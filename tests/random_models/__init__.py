"""Writes model folders with random weights: no torch, no hub. Tests and benchmarks load them."""
