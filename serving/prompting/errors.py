"""What can be wrong with a model's folder, told to the person who added it."""

from __future__ import annotations


class UnusableFolder(Exception):
    """The folder cannot be served as it is. The message says which file and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
