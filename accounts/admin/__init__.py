"""What administrators see of this room. Django finds the classes through this import."""

from accounts.admin import (
    alerts,
    books,
    captures,
    keys,
    limits,
    organizations,
    people,
    signin,
    usage,
)

__all__ = [
    "alerts",
    "books",
    "captures",
    "keys",
    "limits",
    "organizations",
    "people",
    "signin",
    "usage",
]
