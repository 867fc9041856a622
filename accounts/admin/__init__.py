"""What administrators see of this room. Django finds the classes through this import."""

from accounts.admin import alerts, books, keys, limits, organizations, people, signin, usage

__all__ = ["alerts", "books", "keys", "limits", "organizations", "people", "signin", "usage"]
