"""Wire formats and the inner form, both ways. Pure: no I/O, no clock, no randomness."""
