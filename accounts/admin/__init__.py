"""What administrators see of this room. Django finds the classes through this import."""

from accounts.admin import keys, people, usage

__all__ = ["keys", "people", "usage"]
