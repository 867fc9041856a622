"""Use cases that join the other rooms."""
