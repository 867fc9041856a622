"""Exactly one usage record for each request, also after a kill, and no SQL while it runs."""
