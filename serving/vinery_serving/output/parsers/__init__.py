"""How each family of models writes its output, and what reads it: one file for each family."""
