"""Producing tokens: from an HTTP body to the engine and back."""
