"""`python -m benchmarks.stored_objects`: stored responses, conversations and chats in full tables.

Fills a new SQLite file, and a new PostgreSQL server if this machine has PostgreSQL, and measures
what clients, pages and sweeps do. Times are of processors: of this process, and of PostgreSQL's.
Ends with 1 when something takes longer than it may.
"""

import argparse
import sys

from benchmarks.databases import is_in_time, on_each_database, set_up_django
from benchmarks.machine import show

_REPEATS = 5


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    if arguments.here:
        return _measure(int(arguments.items))
    return max(on_each_database("benchmarks.stored_objects", sys.argv[1:]))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stored_objects")
    parser.add_argument("--items", type=float, default=10e6, help="default: 10 million")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _measure(num_items: int) -> int:
    set_up_django()
    from django.db import connection

    from benchmarks.generated_stored import measures, write_stored
    from vinery_accounts.models import StoredItem

    if not StoredItem.objects.exists():
        show(f"{connection.vendor}: writing {num_items:,} items")
        write_stored(num_items)
    print(f"\n{connection.vendor}, {StoredItem.objects.count():,} items\n")
    is_met = True
    for name, allowed_ms, work in measures():
        num_times = 1 if name.startswith("!") else _REPEATS
        is_met = is_in_time(name.removeprefix("!"), work, allowed_ms, num_times) and is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
