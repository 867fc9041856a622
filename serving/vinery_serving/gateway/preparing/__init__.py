"""Gives a parsed request a prompt, a grammar and sampling parameters."""
