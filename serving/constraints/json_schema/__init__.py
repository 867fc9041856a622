"""JSON schemas as grammars: `grammar.py` reads a schema with the help of the other files."""
