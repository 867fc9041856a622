"""Names that users give: validators, and escaping of invisible characters.

Invisible characters can reorder a terminal's output or make two names look equal. The command line
uses this file before it loads Django.
"""

import unicodedata
from typing import Final, NoReturn

# Controls, formats (such as writing direction), surrogates, line and paragraph separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Some scripts cannot be written without these two.
_JOINERS: Final = frozenset("\u200c\u200d")


def is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def is_blank(text: str) -> bool:
    return not "".join(character for character in text if character not in _JOINERS).strip()


def escaped(text: str, *, keep: str = "") -> str:
    """The text with hidden characters written as `\\x1b`, except the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if is_hidden(character) and character not in keep
        else character
        for character in text
    )


def check_characters(value: str) -> None:
    for character in value:
        if is_hidden(character):
            _refuse(f"This has an invisible character, U+{ord(character):04X}. Leave it out.")


def check_name(value: str) -> None:
    check_characters(value)
    if is_blank(value):
        _refuse("Give a name that is more than blanks.")


def check_name_without_slash(value: str) -> None:
    """Raises ValidationError like `check_name`, and for a slash: ORGANISATION/PROJECT needs it."""
    check_name(value)
    if "/" in value:
        _refuse("A slash separates an organisation from its project. Leave it out.")


def repaired(name: str) -> str:
    visible = "".join(character for character in name if not is_hidden(character))
    return "unnamed" if is_blank(visible) else visible


def _refuse(message: str) -> NoReturn:
    from django.core.exceptions import ValidationError

    raise ValidationError(message)
