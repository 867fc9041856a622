"""How dates are written, for each language."""
