"""JSON schemas as grammars: `translator.py` reads a schema with the help of the other files."""
