"""The aims of the benchmark: for each a number, the measurement, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.compare import ModelResult
from benchmarks.crowds import CrowdsResult

Results = Sequence[ModelResult]

_RATIO: Final = "tokens/s by those of the bare loop"
_FIRST: Final = "milliseconds added to the first token"
_MEDIAN_GAP: Final = "median milliseconds between tokens"
_P99_GAP: Final = "p99 of milliseconds between tokens"
# (model, streams, what, bound)
_OF_MODELS: Final = (
    ("tiny-chat", 1, _RATIO, 0.85),
    ("tiny-chat", 32, _RATIO, 0.80),
    ("tiny-chat", 64, _RATIO, 0.85),
    ("0.5b", 1, _RATIO, 0.98),
    ("0.5b", 8, _RATIO, 0.98),
    ("0.5b", 32, _RATIO, 0.98),
    ("tiny-chat", 1, _FIRST, 2.0),
    ("0.5b", 1, _FIRST, 2.0),
    ("tiny-chat", 8, _MEDIAN_GAP, 3.0),
    # The bare loop has up to 88 ms with steps of 2,048 tokens.
    ("0.5b", 8, _P99_GAP, 88.0),
    ("0.5b", 32, _P99_GAP, 88.0),
)


@dataclass(frozen=True)
class Aim:
    """A promise about one number. `measured` is None when that was not run."""

    what: str
    bound: float
    measured: float | None
    is_least: bool = False  # the number must be at least `bound`; otherwise at most

    @property
    def is_met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.bound if self.is_least else self.measured <= self.bound

    @property
    def part(self) -> float | None:
        """How much of the aim is reached; 1 and more: all."""
        if self.measured is None or 0 in (self.measured, self.bound):
            return None if self.is_met is None else float(self.is_met)
        part = self.measured / self.bound
        return part if self.is_least else 1 / part

    @property
    def wanted(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.bound:g}"

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "wanted": self.wanted,
            "measured": self.measured,
            "is_met": self.is_met,
        }


def measured_aims(results: Results, crowds: CrowdsResult | None) -> tuple[Aim, ...]:
    measured = {
        (result.model, point.num_streams, what): value
        for result in results
        for point in result.points
        for what, value in (
            (_RATIO, point.throughput_ratio.median),
            (_MEDIAN_GAP, point.server.token_gap_p50_ms),
            (_P99_GAP, point.server.token_gap_p99_ms),
        )
    }
    measured |= {(each.model, 1, _FIRST): each.first_token.added_ms.median for each in results}
    of_models = (
        Aim(
            f"{model} at {num} stream{'s' if num > 1 else ''}, {what}",
            bound,
            measured.get((model, num, what)),
            is_least=what == _RATIO,
        )
        for model, num, what, bound in _OF_MODELS
    )
    return (*of_models, *_crowds(crowds))


def _crowds(result: CrowdsResult | None) -> Iterator[Aim]:
    refused = scaled = web_mb = late = None
    if result is not None:
        refused = float(sum(each.num_refused + each.num_failed for each in result.crowds))
        web_mb = max((each.web_peak_mb for each in result.crowds), default=None)
        of_loops = {e.num_clients: e for e in result.crowds if e.num_requests > e.num_clients}
        if {32, 256} <= of_loops.keys():
            scaled = of_loops[256].tokens_per_s / of_loops[32].tokens_per_s
        first_ms = [each.first_token_p50_ms for each in result.neighbours]
        late = first_ms[-1] / first_ms[0] if first_ms else None
    yield Aim("crowds of up to 1,000, requests without an answer", 0.0, refused)
    yield Aim("256 clients, tokens/s by those of 32", 1.0, scaled, is_least=True)
    yield Aim("the web process beside crowds, MB at most", 300.0, web_mb)
    yield Aim("first token of another key beside 500 prompts, by that beside a stream", 2.0, late)
