"""`vinery doctor`: checks this machine, the home, the settings and the stores, and names cures.

It works without a home and without a running server, and creates nothing.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from vinery_platform.cli.shape import add_json, json_of, load_django, print_line
from vinery_platform.config.env import SettingError
from vinery_platform.doctor import home, machine, settings
from vinery_platform.doctor.finding import Check, Finding, Level, failure, ok


def add_to(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print all findings. Returns 1 if one is a failure, else 0."""
    found = []
    for finding in _findings():
        found.append(finding)
        if not arguments.json:
            _print(finding)
    counts = Counter(finding.level for finding in found)
    if arguments.json:
        print(json_of([asdict(finding) for finding in found]))
    else:
        num_ok, num_warnings = counts[Level.OK], counts[Level.WARNING]
        print_line(f"{num_ok} ok, {num_warnings} warnings, {counts[Level.FAILURE]} failures")
    return int(counts[Level.FAILURE] > 0)


def _findings() -> Iterator[Finding]:
    """Yield findings as they are made: of files, the machine, the home, and last the stores."""
    for checks in (settings.CHECKS, machine.CHECKS, home.CHECKS):
        yield from _all(checks)
    try:
        load_django()
    except SettingError as error:
        yield failure("settings", str(error), "vinery config shows where each setting is set.")
        return
    yield ok("settings", "All values can be used.")
    from vinery_platform.doctor import stores  # its tables need Django

    yield from _all(stores.CHECKS)


def _all(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings of these checks. A check that cannot be made has failed."""
    for check in checks:
        try:
            yield from check()
        except (SettingError, OSError) as error:
            yield failure(check.__name__.replace("_", " "), str(error), "See: vinery config")


def _print(finding: Finding) -> None:
    print_line(f"{finding.level.value.ljust(9)}{finding.check.ljust(16)}{finding.text}")
    if finding.cure:
        print_line(f"{' ' * 25}cure: {finding.cure}")
