"""JSON schemas and regular expressions as grammars of our own, in which everything ends."""
