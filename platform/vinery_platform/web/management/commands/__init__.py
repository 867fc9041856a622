"""Django commands of the wiring."""
