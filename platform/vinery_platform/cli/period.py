"""Lengths of time such as 7d, which need no Django, and the options of a period."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_PERIOD: Final = re.compile(r"([1-9]\d{0,5})([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
DAY: Final = timedelta(days=1)


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
