"""What administrators see of this room. Django finds the classes through this import."""

from accounts.admin import keys, people, signin, usage

__all__ = ["keys", "people", "signin", "usage"]
