"""English, the only language so far."""
