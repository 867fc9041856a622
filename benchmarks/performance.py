"""docs/performance.md: the aims with new and earlier measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from benchmarks.aims import Aim
from benchmarks.machine import REPOSITORY
from benchmarks.report import Report, blocks

PAGE: Final = REPOSITORY / "docs" / "performance.md"
# The published figures, for runs that have no earlier file of their own.
FIGURES: Final = REPOSITORY / "docs" / "performance.json"


def publish(report: Report, earlier: Mapping[str, float], now: datetime) -> None:
    """Write the page and its figures. An aim that was not run keeps its earlier figure."""
    PAGE.write_text(page(report, earlier, now), encoding="utf-8")
    known = {
        aim.what: aim.measured if aim.measured is not None else earlier.get(aim.what)
        for aim in report.aims
    }
    aims = [{"what": what, "measured": measured} for what, measured in sorted(known.items())]
    FIGURES.write_text(json.dumps({"aims": aims}, indent=2) + "\n", encoding="utf-8")


def page(report: Report, earlier: Mapping[str, float], now: datetime) -> str:
    """Return the text of the page."""
    machine = report.machine
    lines = [
        "# Performance",
        "",
        f"`make bench` measured these figures on {now.astimezone(UTC):%Y-%m-%d} and wrote this "
        "page. [How it measures](../benchmarks/README.md) explains each figure.",
        "",
        f"Machine: {machine['num_cores']} cores, {machine['cpu']}, {machine['memory_gb']} GB, "
        f"{machine['system']}. The clients share the cores with the server. Commit "
        f"{machine['commit']}, Python {machine['python']}, {_versions(machine['versions'])}.",
        "",
        "| what | aim | measured | earlier | reached |",
        "| --- | --- | --- | --- | --- |",
        *(_row(aim, earlier.get(aim.what)) for aim in report.aims),
        "",
        *_busy(report),
        "## Tables",
        "",
        "In cells with two numbers, the server stands before the bare loop.",
        *(f"\n```text\n{block}\n```" for block in blocks(report)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _row(aim: Aim, earlier: float | None) -> str:
    reached = {True: "yes", False: "no", None: "not measured"}[aim.is_met]
    cells = (aim.what, aim.wanted, _number(aim.measured), _number(earlier), reached)
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _busy(report: Report) -> Iterator[str]:
    busy = [each for each in report.calms if not each.is_calm]
    if busy:
        yield "The machine was not calm, so these figures vary:"
        yield ""
    for each in busy:
        yield f"- {each.part}: other programs used {each.busy:.0%} of the machine."
