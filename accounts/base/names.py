"""Validators of the names that users give."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from accounts.base.characters import is_blank, is_hidden


def check_characters(value: str) -> None:
    """Raises ValidationError if the text has an invisible character."""
    for character in value:
        if is_hidden(character):
            _refuse(f"This has an invisible character, U+{ord(character):04X}. Leave it out.")


def check_name(value: str) -> None:
    """Raises ValidationError if the name has invisible characters, or nothing else than blanks."""
    check_characters(value)
    if is_blank(value):
        _refuse("Give a name that is more than blanks.")


def check_name_without_slash(value: str) -> None:
    """Raises ValidationError like `check_name`, and for a slash: ORGANISATION/PROJECT needs it."""
    check_name(value)
    if "/" in value:
        _refuse("A slash separates an organisation from its project. Leave it out.")


def repaired(name: str) -> str:
    """A stored name that may be older than these rules, changed as far as they demand."""
    visible = "".join(character for character in name if not is_hidden(character))
    return "unnamed" if is_blank(visible) else visible


def _refuse(message: str) -> NoReturn:
    from django.core.exceptions import ValidationError

    raise ValidationError(message)
