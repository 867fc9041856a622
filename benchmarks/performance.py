"""docs/performance.md: the aims with new and earlier measurements, and their picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.aims import Aim
from benchmarks.machine import REPOSITORY, Calm, markdown
from benchmarks.picture import draw
from benchmarks.report import Report, blocks

PAGE: Final = REPOSITORY / "docs" / "performance.md"
PICTURE: Final = REPOSITORY / "docs" / "performance.svg"


def publish(report: Report, earlier: Mapping[str, float], now: datetime) -> None:
    """Write the picture, and the section of the page."""
    PICTURE.write_text(draw("How much of each aim is reached", report.aims), encoding="utf-8")
    replace(PAGE, "bench", section(report, earlier, now))


def replace(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of a name. Raises ValueError for a page without."""
    text, marks = page.read_text(encoding="utf-8"), (f"<!-- {name} -->", f"<!-- /{name} -->")
    begin, end = text.index(marks[0]), text.index(marks[1])
    new = "\n".join([text[:begin] + marks[0], "", *lines, "", text[end:]])
    page.write_text(new, encoding="utf-8")


def section(report: Report, earlier: Mapping[str, float], now: datetime) -> list[str]:
    """Return the lines of the page."""
    tables = [f"\n```text\n{block}\n```" for block in blocks(report)]
    return [
        f"`make bench` measured these figures on {now.astimezone(UTC):%Y-%m-%d} and wrote this "
        "page. [How it measures](../benchmarks/README.md) explains each figure.",
        "",
        *machine_lines(report.machine),
        "![How much of each aim is reached](performance.svg)",
        "",
        *aim_table(report.aims, earlier),
        *busy_lines(report.calms),
        "## Tables",
        "",
        "In cells with two numbers, the server stands before the bare loop.",
        *"\n".join(tables).split("\n"),
    ]


def machine_lines(machine: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {each}" for name, each in machine["versions"].items())
    return [
        f"Machine: {machine['num_cores']} cores, {machine['cpu']}, {machine['memory_gb']} GB, "
        f"{machine['system']}. The clients share the cores with the server. Commit "
        f"{machine['commit']}, Python {machine['python']}, {versions}.",
        "",
    ]


def aim_table(aims: Sequence[Aim], earlier: Mapping[str, float]) -> list[str]:
    return [
        *markdown(
            ("what", "aim", "measured", "earlier", "reached"),
            *(_row(aim, earlier.get(aim.what)) for aim in aims),
        ),
        "",
    ]


def busy_lines(calms: Sequence[Calm]) -> Iterator[str]:
    """Say whether the machine was calm."""
    busy = [each for each in calms if not each.is_calm]
    yield "The machine was not calm, so these figures vary:" if busy else "The machine was calm."
    yield ""
    for each in busy:
        yield f"- {each.part}: other programs used {each.busy:.0%} of the machine."
    yield from [""] * bool(busy)


def _row(aim: Aim, earlier: float | None) -> tuple[str, ...]:
    reached = {True: "yes", False: "no", None: "not measured"}[aim.is_met]
    return aim.what, aim.wanted, _number(aim.measured), _number(earlier), reached


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
