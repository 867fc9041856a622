"""What a name may be, in whatever way it comes: people tell rows apart by it."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from accounts.base.characters import is_blank, is_hidden


def check_characters(value: str) -> None:
    """Raises ValidationError for a character that nobody sees."""
    for character in value:
        if is_hidden(character):
            raise ValidationError(
                f"This has a character that nobody sees, U+{ord(character):04X}. Leave it out."
            )


def check_name(value: str) -> None:
    """Raises ValidationError for what nobody could read."""
    check_characters(value)
    if is_blank(value):
        raise ValidationError("Give a name that is more than blanks.")


def mended(name: str) -> str:
    """A name from before, as one may be now: what has it goes on under another row."""
    seen = "".join(character for character in name if not is_hidden(character))
    return "unnamed" if is_blank(seen) else seen


def check_name_of_place(value: str) -> None:
    """Raises ValidationError for what could not be written as ORGANISATION/PROJECT, too."""
    check_name(value)
    if "/" in value:
        raise ValidationError("A slash parts an organisation from its project. Leave it out.")
