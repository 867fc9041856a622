"""Generates documents from the code: `python -m docs`."""
