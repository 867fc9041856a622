"""Shared by all commands: adding a command, failure, the start of Django, printed tables, periods.

The docstring of a function that runs a command is the command's description in `--help`; the first
sentence is the line in the list of commands.
"""

import argparse
import gc
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vinery_accounts.base.names import escaped, is_hidden
from vinery_platform.config import secret_files
from vinery_platform.config.home import Home

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run = Callable[[argparse.Namespace], int | str]
"""What a command does. Returns its exit status, or the line that it prints."""

_MAX_ROWS: Final = 1_000_000
_PERIOD: Final = re.compile(r"([1-9]\d{0,5})([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
DAY: Final = timedelta(days=1)


class Failure(Exception):
    """A command failed. The message gives the reason in one line."""


@contextmanager
def failing_on(*kinds: type[Exception]) -> Iterator[None]:
    """Raise these errors, whose messages are for users, as `Failure`."""
    try:
        yield
    except kinds as error:
        raise Failure(str(error)) from error


@contextmanager
def importing() -> Iterator[None]:
    """Import without looking for garbage again and again, which takes a fifth of a start: what is
    imported is none, and stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_django() -> None:
    """Load settings and apps. Raises `SettingError` for an invalid setting."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery_platform.settings")
    import django
    from django.apps import apps

    if not apps.ready:
        with importing():
            django.setup()


def start_django() -> None:
    """Load settings and apps for a process of `vinery up`, and create the folders of its home.
    Raises `SettingError`, also for a home that was not prepared."""
    secret_files.require(Home.from_env())
    load_django()
    from django.conf import settings

    settings.HOME.create()


def require_home() -> None:
    """Raises `SettingError` for a home that was not prepared, and creates nothing. Django is
    loaded."""
    from django.conf import settings

    secret_files.require(settings.HOME)
    leave_pool()
    database = settings.DATABASES["default"]
    is_file = database["ENGINE"].endswith("sqlite3")
    if is_file and not Path(database["NAME"]).is_file():  # opening would create the file
        raise settings.HOME.missing()


def leave_pool() -> None:
    """Connect without a pool, which tries again for seconds, and hides the reason of a failure."""
    from django.db import connection

    if connection.connection is None:
        connection.settings_dict["OPTIONS"].pop("pool", None)


def subcommands(parser: argparse.ArgumentParser) -> Commands:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    actions: Commands, name: str, run: Run, text: str = "", **more: Any
) -> argparse.ArgumentParser:
    """Add a command. `text` is its description, by default the docstring of `run`."""
    about = text or description_of(run)
    parser = actions.add_parser(name, help=as_help(about), description=about, **more)
    parser.set_defaults(run=run, flags={})
    return parser


def description_of(run: Callable[..., int | str]) -> str:
    return " ".join(str(run.__doc__).split())


def as_help(text: str) -> str:
    """Return the first sentence as argparse shows help: lower case, without a period."""
    first = text.partition(". ")[0].rstrip(".").replace("%", "%%")
    return first if first[:2].isupper() else first[:1].lower() + first[1:]


def glossary(meanings: Mapping[str, str]) -> str:
    """Return names and their meanings, as wide as the terminal, for the end of `--help`."""
    indent = max(map(len, meanings)) + 4
    width = max(shutil.get_terminal_size().columns - 2, indent + 30)
    return "\n".join(
        textwrap.fill(f"  {name}".ljust(indent) + text, width, subsequent_indent=" " * indent)
        for name, text in meanings.items()
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns of text under their heads. Control characters of cells are escaped, so that
    a cell neither imitates a row nor controls the terminal."""
    lines = [tuple(heads), *(tuple(map(escaped, row)) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--json", "print JSON, one object for each row")


def _number(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_ROWS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MAX_ROWS}")
    return int(text)


def add_number(
    parser: argparse.ArgumentParser, flags: str, default: int, text: str, metavar: str = "N"
) -> None:
    """Add an option with a number of rows, days or seconds. `flags` are divided by blanks."""
    text = f"{text} (default: %(default)s)"
    parser.add_argument(*flags.split(), type=_number, default=default, metavar=metavar, help=text)


def add_switch(parser: Any, flag: str, text: str) -> None:
    """Add an option without a value to a parser, or to a group of one."""
    parser.add_argument(flag, action="store_true", help=text)


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("csv", "jsonl"), default="csv", help="default: csv")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def write_file(path: str | None, texts: Iterable[str]) -> int:
    """Write the texts as they are read, by default to standard output. Returns the exit status.
    Raises `Failure`."""
    if path is None:
        sys.stdout.writelines(texts)
        return 0
    try:
        # CSV writes its own line ends.
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            file.writelines(texts)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}.") from error
    return 0


def print_rows(rows: Sequence[Mapping[str, Any]], heads: Sequence[str], *, as_json: bool) -> None:
    """Print a table with the columns `heads`, or JSON with all values."""
    if as_json:
        print(json_of(rows))
        return
    titles = [head.upper().replace("_", " ") for head in heads]
    print(table(titles, [[_cell(row[head]) for head in heads] for row in rows]))


def json_of(value: object) -> str:
    """Return indented JSON without control characters."""
    text = json.dumps(value, indent=2, default=_plain, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        json.dumps(character)[1:-1] if is_hidden(character) and character != "\n" else character
        for character in text
    )


def print_line(text: str) -> None:
    """Print a line. Control characters, which names may have, are escaped."""
    print(escaped(text))


def print_values(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        print_line(f"{name + ':':<9} {value}")


def print_note(text: str) -> None:
    """Print a line to standard error, because scripts read a secret from standard output."""
    print(f"vinery: {escaped(text)}", file=sys.stderr)


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


# -- Periods


def period(text: str) -> timedelta:
    """Return a length of time such as 30d. Raises what argparse turns into a usage error."""
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a period like 30m, 12h, 30d or 4w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def add_period(parser: argparse.ArgumentParser, usual: timedelta | None = DAY) -> None:
    """Add the options of a period. `usual` is its default length; None: all time."""
    default = "the beginning" if usual is None else "1d"
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from", dest="since", type=_time, metavar="TIME", help="such as 2026-03-01T12:00"
    )
    parser.add_argument("--to", dest="until", type=_time, metavar="TIME", help="default: now")
    begin.add_argument(
        "--last",
        type=period,
        default=usual,
        metavar="PERIOD",
        help=f"instead of --from, like 30m, 12h or 7d (default: {default})",
    )
    begin.add_argument(
        "--month", choices=("this", "last"), help="this calendar month until now, or the last one"
    )
    parser.add_argument(
        "--time-zone", type=_zone, default=ZoneInfo("UTC"), help="of days and months (default: UTC)"
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time like 2026-03-01 or 2026-03-01T12:00"
        ) from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise argparse.ArgumentTypeError(f"{name!r} is no time zone like Europe/Berlin") from None


def period_of(arguments: argparse.Namespace) -> tuple[datetime, datetime]:
    """Return the start (inclusive) and the end (exclusive). Times without a zone are in
    `--time-zone`. Raises ValueError for a month with another end."""
    if arguments.month:
        if arguments.until:
            raise ValueError("A month has its own end. Leave out --to, or set --from.")
        from vinery_accounts.usage.periods import calendar_month

        now = datetime.now(arguments.time_zone)
        return calendar_month(now, is_last=arguments.month == "last")
    until = _in_zone(arguments.until, arguments.time_zone) or datetime.now(UTC)
    since = _in_zone(arguments.since, arguments.time_zone)
    if since is None:
        since = datetime.fromtimestamp(0, UTC) if arguments.last is None else until - arguments.last
    return since, until


def _in_zone(moment: datetime | None, zone: ZoneInfo) -> datetime | None:
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=zone)
