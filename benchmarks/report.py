"""The measurements, as tables for people and a document for programs. Ratios come first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import crowds as crowd_tables
from benchmarks.aims import Aim, measured_aims
from benchmarks.compare import ModelResult, Point, Spread
from benchmarks.crowds import CrowdsResult
from benchmarks.machine import Calm
from benchmarks.settings import TINY_CHAT
from benchmarks.speculation import SpeculationPoint


@dataclass(frozen=True)
class Report:
    """An invocation of the benchmark. `machine` was read before anything ran."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    results: tuple[ModelResult, ...] = ()
    speculation: tuple[SpeculationPoint, ...] = ()
    crowds: CrowdsResult | None = None
    calms: tuple[Calm, ...] = ()

    @property
    def aims(self) -> tuple[Aim, ...]:
        return measured_aims(self.results, self.crowds)

    def document(self, now: datetime) -> dict[str, Any]:
        return {
            "measured_at": now.astimezone(UTC).isoformat(timespec="seconds"),
            "aims": [aim.document() for aim in self.aims],
            "results": [asdict(result) for result in self.results],
            "speculation": [asdict(point) for point in self.speculation],
            "crowds": self.crowds and asdict(self.crowds),
            "settings": self.settings,
            "machine": self.machine,
            "calm": [asdict(each) for each in self.calms],
        }


_COLUMNS = (
    *("streams", "tok/s server/bare", "ratio", "(lowest-highest)", "first token ms"),
    *("gap p50 ms", "gap p99 ms", "web us/tok", "client us/tok", "same text"),
)
_SPECULATION_COLUMNS = (
    *("streams", "way", "text", "tok/s ratio", "(lowest-highest)"),
    *("tokens a step", "taken/proposed", "same text"),
)


def earlier(folder: Path) -> dict[str, float]:
    """Return the last measurement of each aim by its words, from the files of runs in `folder`."""
    measured: dict[str, float] = {}
    for file in sorted(folder.glob("*.json")):  # named by their times
        with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or of another version
            for aim in json.loads(file.read_text(encoding="utf-8"))["aims"]:
                if aim["measured"] is not None:
                    measured[aim["what"]] = float(aim["measured"])
    return measured


def blocks(report: Report) -> list[str]:
    """The tables of measurements. In cells with two numbers, the server stands before the bare
    engine."""
    blocks = [_model_block(result) for result in report.results]
    if report.speculation:
        blocks.append(_speculation_block(report.speculation))
    if report.crowds is not None:
        blocks.append(_crowds_block(report.crowds))
    return blocks


def write(document: dict[str, Any], folder: Path, now: datetime, kind: str = "") -> Path:
    """Write the document of a report into the folder, named by the time."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kind}{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.json"
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return file


def _model_block(result: ModelResult) -> str:
    first = result.first_token
    title = (
        f"{result.model}: first token of single requests: server {first.server_p50_ms:.2f} ms, "
        f"bare {first.bare_p50_ms:.2f} ms, added {first.added_ms.median:.2f} ms "
        f"(quartiles {first.added_ms.lowest:.2f} to {first.added_ms.highest:.2f})"
    )
    return "\n".join([title, *aligned(_COLUMNS, *map(_row, result.points))])


def _speculation_block(points: tuple[SpeculationPoint, ...]) -> str:
    rows = (
        (
            str(point.num_streams),
            point.way,
            point.kind,
            f"{point.speed.median:.3f}",
            spread_range(point.speed),
            f"{point.tokens_per_step:.2f}",
            f"{point.num_accepted} / {point.num_proposed}",
            f"{point.same_texts:.0%}",
        )
        for point in points
    )
    title = "tiny-chat: tokens proposed ahead, greedy, by the same model without"
    return "\n".join([title, *aligned(_SPECULATION_COLUMNS, *rows)])


def _crowds_block(result: CrowdsResult) -> str:
    title = f"{TINY_CHAT}: clients in closed loops and requests at once, answers of 64 tokens"
    rows = aligned(*crowd_tables.table(result))
    return "\n".join([title, *rows, *crowd_tables.neighbour_lines(result)])


def aligned(*rows: tuple[str, ...]) -> Iterator[str]:
    """Lines of cells under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _row(point: Point) -> tuple[str, ...]:
    server, bare = point.server, point.bare
    return (
        str(point.num_streams),
        f"{server.tokens_per_s:.0f} / {bare.tokens_per_s:.0f}",
        f"{point.throughput_ratio.median:.3f}",
        spread_range(point.throughput_ratio),
        f"{server.first_token_p50_ms:.1f} / {bare.first_token_p50_ms:.1f}",
        f"{server.token_gap_p50_ms:.2f} / {bare.token_gap_p50_ms:.2f}",
        f"{server.token_gap_p99_ms:.2f} / {bare.token_gap_p99_ms:.2f}",
        _optional(server.web_cpu_us_per_token),
        _optional(server.client_cpu_us_per_token),
        f"{point.same_texts:.0%}",
    )


def spread_range(spread: Spread) -> str:
    return f"({spread.lowest:.3f}-{spread.highest:.3f})"


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
