"""`python -m benchmarks.usage_reports`: how long reports and the console's pages over usage take.

Fills a new SQLite file, and a new PostgreSQL server if this machine has PostgreSQL,
with made-up requests (`generated_usage`) and measures reports and pages: their processor
time, and that of PostgreSQL's process. Ends with 1 when one takes longer than it may.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.databases import is_in_time, on_each_database, set_up_django
from benchmarks.machine import show

_ALLOWED_PAGE_MS = 100.0
_ALLOWED_MS = {"postgresql": 200.0, "sqlite": 500.0}
# Pages are about periods until now, and about the last month.
_UNTIL = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
_DAYS = 62


def main(argv: list[str] | None = None) -> int:
    """Measure both databases, each in a process: Django knows one."""
    arguments = _arguments(argv)
    if arguments.here:
        return _measure(arguments)
    return max(on_each_database("benchmarks.usage_reports", sys.argv[1:]))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.usage_reports")
    parser.add_argument("--requests", type=float, default=10e6, help="default: 10 million")
    parser.add_argument("--no-rows", action="store_true", help="write roll-ups only: quicker")
    parser.add_argument("--repeats", type=int, default=5, help="of each page, after a first time")
    text = "measure the database of DATABASE_URL, which is filled only if it is empty"
    parser.add_argument("--here", action="store_true", help=text)
    return parser.parse_args(argv)


def _measure(arguments: argparse.Namespace) -> int:
    set_up_django()
    from django.db import connection

    from benchmarks.generated_usage import write_usage
    from vinery_accounts.models import DayRollup
    from vinery_accounts.usage.upkeep import write_spans

    if not DayRollup._default_manager.exists():
        show(f"{connection.vendor}: writing {arguments.requests:,.0f} requests of {_DAYS} days")
        write_usage(int(arguments.requests), _UNTIL, _DAYS, with_rows=not arguments.no_rows)
    allowed_ms = _ALLOWED_MS[connection.vendor]
    print(f"\n{connection.vendor}, {arguments.requests:,.0f} requests, {_DAYS} days\n")
    begun_s = time.perf_counter()
    while num := write_spans(datetime.now(UTC)):
        print(f"{f'the job writes {num} spans':76}{time.perf_counter() - begun_s:9.1f} s in all")
    is_met = True
    for name, view in _views().items():
        is_met = is_in_time(name, view, allowed_ms, 1 + arguments.repeats) and is_met
    if not arguments.no_rows:
        print("\nThe console's pages\n")
        for name, page in _pages():
            is_met = is_in_time(name, page, _ALLOWED_PAGE_MS, 1 + arguments.repeats) and is_met
        _check_a_day()
        _export()
    return 0 if is_met else 1


def _pages() -> Iterator[tuple[str, Callable[[], object]]]:
    from benchmarks import console_pages
    from vinery_accounts.models import User

    if not User.objects.exists():
        console_pages.write_owners()
    yield from console_pages.pages()


def _views() -> dict[str, Callable[[], object]]:
    from vinery_accounts.usage.filters import Dimension
    from vinery_accounts.usage.periods import Granularity
    from vinery_accounts.usage.reports import Question, groups, series, totals

    berlin = ZoneInfo("Europe/Berlin")
    month = {"since": _UNTIL - timedelta(days=30), "until": _UNTIL, "visible": None}
    odd = {
        "since": _UNTIL - timedelta(days=30, hours=2, minutes=17),
        "until": _UNTIL - timedelta(hours=1, minutes=13),
    }
    model, key = {Dimension.MODEL: frozenset({"model-1"})}, {Dimension.KEY: frozenset({1})}
    refused = {Dimension.STATUS: frozenset({"4xx"})}
    ours = {Dimension.ORGANIZATION: frozenset({1})}

    def asked(**changes: Any) -> Question:
        return Question(**{**month, **changes})

    def grouped(*by: Dimension, with_points: bool = False, **changes: Any) -> Callable[[], object]:
        return lambda: groups(asked(**changes), by, with_points=with_points)

    views: dict[str, Callable[[], object]] = {
        "totals": lambda: totals(asked()),
        "totals between odd minutes": lambda: totals(asked(**odd)),
        "by day": lambda: series(asked()),
        "by hour": lambda: series(asked(granularity=Granularity.HOUR)),
        "by day in Berlin": lambda: series(asked(zone=berlin)),
        "by day in Berlin, one key": lambda: series(asked(zone=berlin, filters=key)),
        "by day in Berlin, one model": lambda: series(asked(zone=berlin, filters=model)),
        "by day in Berlin, one organisation": lambda: series(asked(zone=berlin, visible=ours)),
        "largest models, seen by one organisation": grouped(Dimension.MODEL, visible=ours),
        "largest keys of one model": grouped(Dimension.KEY, filters=model),
        "largest models and outcomes": grouped(Dimension.MODEL, Dimension.OUTCOME),
        "largest keys of refusals": grouped(Dimension.KEY, filters=refused),
        "largest keys and models": grouped(Dimension.KEY, Dimension.MODEL),
    }
    # Reports about end users read records: the page by end user reads the newest.
    for dimension in (each for each in Dimension if each is not Dimension.END_USER):
        views[f"largest by {dimension}"] = grouped(dimension)
        views[f"largest by {dimension}, by day"] = grouped(dimension, with_points=True)
        views[f"largest by {dimension}, by day in Berlin"] = grouped(
            dimension, with_points=True, zone=berlin
        )
    return views


def _check_a_day() -> None:
    """Check that the made-up roll-ups are as Vinery would have made them."""
    from vinery_accounts.usage.upkeep import verify

    begun_s = time.perf_counter()
    today = _UNTIL.replace(hour=0)
    [checked] = verify(today - timedelta(days=1), today)
    took_s = time.perf_counter() - begun_s
    assert checked.num_rows
    assert not checked.differences, checked.differences[0]
    print(f"{f'verify a day of {checked.num_rows:,} requests':76}{took_s:9.1f} s")


def _export() -> None:
    from vinery_accounts.usage.export import Format, Selection, export

    for form in Format:
        begun_s = time.perf_counter()
        num_lines = sum(
            page.count("\n") for page in islice(export(Selection(visible=None), form), 200)
        )
        took_s = time.perf_counter() - begun_s
        print(f"{f'export as {form}':76}{num_lines / took_s:9,.0f} rows/s")


if __name__ == "__main__":
    sys.exit(main())
