"""Models and engines as a web process sees them."""
