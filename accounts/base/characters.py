"""Characters that nobody sees, and that change how what is around them looks: a terminal takes
them for orders, and a list for another row."""

from __future__ import annotations

import unicodedata
from typing import Final

# Controls, formats (marks that turn the direction of writing), half pairs, ends of lines.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Some scripts cannot be written without them.
_JOINERS: Final = frozenset("\u200c\u200d")


def is_hidden(character: str) -> bool:
    """Whether it has no business in a name."""
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def escaped(text: str, *, keep: str = "") -> str:
    """The text with `\\x1b` for what is hidden, save for the characters to keep."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if is_hidden(character) and character not in keep
        else character
        for character in text
    )


def is_blank(text: str) -> bool:
    """Whether there is nothing to see."""
    return not "".join(character for character in text if character not in _JOINERS).strip()
