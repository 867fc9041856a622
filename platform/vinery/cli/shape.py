"""What all commands share: their parsers' type, their failure, how Django is started, and how
lists are printed."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from accounts.base.names import escaped, is_hidden

if TYPE_CHECKING:
    from django.core.exceptions import ValidationError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Failure(Exception):
    """A command could not do what it was asked. The message says why, in one line."""


def start_django() -> None:
    """Load settings and apps, and make the home folder's folders.

    Raises `SettingError` for a setting that cannot be used.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery.settings")
    import django

    django.setup()
    from django.conf import settings

    settings.HOME.create()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under their heads, as wide as they need to be. What is in a cell draws
    no other row, and gives the terminal no orders."""
    lines = [tuple(heads), *(tuple(map(escaped, row)) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Let a list be printed for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON, one object for each row")


_MOST = 1_000_000


def counted(text: str) -> int:
    """How many of something. Raises what argparse turns into a usage error."""
    if not (text.isdecimal() and 1 <= int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def add_num(parser: argparse.ArgumentParser) -> None:
    """Let a list be as long as wanted."""
    parser.add_argument(
        "--num", type=counted, default=50, metavar="N", help="how many (default: %(default)s)"
    )


def print_rows(rows: Sequence[Mapping[str, Any]], heads: Sequence[str], *, as_json: bool) -> None:
    """Print rows that all have the same columns: as a table, or all that is known as JSON.

    The table has the columns of `heads`.
    """
    if as_json:
        print(json_of(rows))
        return
    titles = [head.upper().replace("_", " ") for head in heads]
    print(table(titles, [[_cell(row[head]) for head in heads] for row in rows]))


def json_of(told: object) -> str:
    """JSON for programs that people can look at, too."""
    text = json.dumps(told, indent=2, default=_plain, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        json.dumps(character)[1:-1] if is_hidden(character) and character != "\n" else character
        for character in text
    )


def say(text: str) -> None:
    """Print a line, in which names are that could hold anything."""
    print(escaped(text))


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what a rule refuses into a line. Raises `Failure`."""
    from django.core.exceptions import ValidationError

    try:
        yield
    except ValidationError as error:
        raise Failure(_told(error)) from error
    except ValueError as error:
        raise Failure(str(error)) from error


# Columns that commands call otherwise. Those without a word are about the whole row.
_OPTIONS = {
    "__all__": "",
    "is_active": "",
    "is_superuser": "",
    "role": "",
    "username": "name",
    "allowed_models": "--model",
    "allowed_endpoints": "--endpoint",
    "allowed_networks": "--network",
    "scopes": "--scope",
    "expires_at": "--expires-in",
    "rotate_every_days": "--rotate-every",
    "rotation_grace_days": "--rotation-grace",
    "capture_hours": "--capture-hours",
    "capture_redactions": "--redact",
    "email": "--email",
    "first_name": "--first-name",
    "last_name": "--last-name",
    "time_zone": "--time-zone",
    "week_start": "--week-start",
    "is_shadow": "--shadow",
    "alert_at": "--alert-at",
    "amount": "--amount",
    "metric": "--metric",
    "window": "--window",
}


def _told(error: ValidationError) -> str:
    """Each message, with the name of what it is about where the message does not have it."""
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    return " ".join(
        message if not word or word.strip("-") in message.lower() else f"{word}: {message}"
        for word, messages in (
            (_OPTIONS.get(name, name), messages) for name, messages in error.message_dict.items()
        )
        for message in messages
    )


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: object) -> str:
    match value:
        case None | "" | [] | ():
            return "-"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M")
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)
