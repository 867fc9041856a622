"""Vinery: wires the rooms together and holds no product logic."""

__version__ = "0.1.0"
