"""The aims of the benchmark: a number for each, what was measured, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.hook import OFF

if TYPE_CHECKING:
    from benchmarks.compare import Point
    from benchmarks.report import Report

# (model, streams, output tokens per second by those of the bare loop)
THROUGHPUT: Final = (
    ("tiny-chat", 1, 0.85),
    ("tiny-chat", 32, 0.80),
    ("tiny-chat", 64, 0.85),
    ("0.5b", 1, 0.98),
    ("0.5b", 8, 0.98),
    ("0.5b", 32, 0.98),
)
# (model, milliseconds added to the first token at one stream)
FIRST_TOKEN: Final = (("tiny-chat", 2.0), ("0.5b", 2.0))
# (model, streams, milliseconds between tokens)
MEDIAN_GAP: Final = (("tiny-chat", 8, 3.0),)
# The bare loop has up to 88 ms with steps of 2,048 tokens.
P99_GAP: Final = (("0.5b", 8, 88.0), ("0.5b", 32, 88.0))
# (vocabulary, streams, time of a step with an unused logits hook by one without a hook)
HOOK: Final = (("32k", 1, 1.02), ("152k", 1, 1.02))


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
    def wanted(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.bound:g}"

    @property
    def part(self) -> float | None:
        """How much of the aim was reached; 1: just all of it."""
        if self.measured is None:
            return None
        if self.is_least:
            return self.measured / self.bound
        return self.bound / self.measured if self.measured > 0 else float("inf")

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "wanted": self.wanted,
            "measured": self.measured,
            "is_met": self.is_met,
        }


def aims_of(report: Report) -> tuple[Aim, ...]:
    """All aims, with what the report has of them."""
    return (
        *_throughput(report),
        *_first_tokens(report),
        *_gaps(report),
        *_hooks(report),
        *_requests(report),
        *_recovery(report),
        *_crowds(report),
        *_idle(report),
    )


def _throughput(report: Report) -> Iterator[Aim]:
    for model, num_streams, least in THROUGHPUT:
        point = _point(report, model, num_streams)
        what = f"{model} at {_streams(num_streams)}, tokens/s by those of the bare loop"
        yield Aim(what, least, point.throughput_ratio.median if point else None, is_least=True)


def _first_tokens(report: Report) -> Iterator[Aim]:
    for model, most_ms in FIRST_TOKEN:
        added = [each.first_token.added_ms.median for each in report.results if each.model == model]
        what = f"{model} at 1 stream, milliseconds added to the first token"
        yield Aim(what, most_ms, next(iter(added), None))


def _gaps(report: Report) -> Iterator[Aim]:
    for model, num_streams, most_ms in MEDIAN_GAP:
        point = _point(report, model, num_streams)
        what = f"{model} at {_streams(num_streams)}, median milliseconds between tokens"
        yield Aim(what, most_ms, point.server.token_gap_p50_ms if point else None)
    for model, num_streams, most_ms in P99_GAP:
        point = _point(report, model, num_streams)
        what = f"{model} at {_streams(num_streams)}, p99 of milliseconds between tokens"
        yield Aim(what, most_ms, point.server.token_gap_p99_ms if point else None)


def _hooks(report: Report) -> Iterator[Aim]:
    for model, num_streams, most in HOOK:
        ratios = (
            point.ratio.median
            for hook in report.hooks
            for point in hook.points
            if hook.model == model and (point.use, point.num_streams) == (OFF, num_streams)
        )
        what = f"{model} at {_streams(num_streams)}, step time with the hook off by that without it"
        yield Aim(what, most, next(ratios, None))


def _requests(report: Report) -> Iterator[Aim]:
    burst = web_cpu_ms = ready = None
    if report.requests is not None:
        burst = report.requests.burst.throughput_ratio.median
        web_cpu_ms = report.requests.web_cpu_ms
        ready = report.requests.ready_ratio.median
    what = "32 short answers at once, tokens/s by those of the bare loop"
    yield Aim(what, 0.70, burst, is_least=True)
    yield Aim("a streamed request, milliseconds of web CPU beside its tokens", 1.0, web_cpu_ms)
    what = "8 streams right after ready, tokens/s by those of a warm platform"
    yield Aim(what, 0.95, ready, is_least=True)


def _recovery(report: Report) -> Iterator[Aim]:
    result = report.recovery
    free_s = [each.free_ms.highest / 1e3 for each in result.departures] if result else []
    restart_s = [each.answered_s - each.loading_s for each in result.restarts] if result else []
    yield Aim("seconds until the slot of a client that left is free", 1.0, _worst(free_s))
    yield Aim("seconds of a killed engine, beside loading", 2.0, _worst(restart_s))


def _crowds(report: Report) -> Iterator[Aim]:
    refused = scaled = web_mb = late = None
    if (result := report.crowds) is not None:
        refused = float(sum(each.num_refused + each.num_failed for each in result.crowds))
        web_mb = _worst(each.web_peak_mb for each in result.crowds)
        of_loops = {e.num_clients: e for e in result.crowds if e.num_requests > e.num_clients}
        if {32, 256} <= of_loops.keys():
            scaled = of_loops[256].tokens_per_s / of_loops[32].tokens_per_s
        first_ms = [each.first_token_p50_ms for each in result.neighbours]
        late = first_ms[-1] / first_ms[0] if first_ms else None
    yield Aim("crowds of up to 1,000, requests without an answer", 0.0, refused)
    yield Aim("256 clients, tokens/s by those of 32", 1.0, scaled, is_least=True)
    yield Aim("the web process beside crowds, MB at most", 300.0, web_mb)
    yield Aim("first token of another key beside 500 prompts, by that beside a stream", 2.0, late)


def _idle(report: Report) -> Iterator[Aim]:
    cpu = memory_mb = ready_s = slowest_s = None
    if report.idle is not None:
        cpu, memory_mb, ready_s = report.idle.cpu, report.idle.memory_mb, report.idle.ready_s
        slowest_s = _worst(each.took_s for each in report.idle.commands)
    yield Aim("an idle platform, part of a core", 0.005, cpu)
    yield Aim("an idle platform, MB of memory without the engine", 220.0, memory_mb)
    yield Aim("a prepared platform, seconds until ready", 4.0, ready_s)
    yield Aim("the slowest command, seconds", 0.4, slowest_s)


def _point(report: Report, model: str, num_streams: int) -> Point | None:
    points = (each.points for each in report.results if each.model == model)
    return next((p for each in points for p in each if p.num_streams == num_streams), None)


def _streams(num: int) -> str:
    return f"{num} stream{'s' if num > 1 else ''}"


def _worst(values: Iterable[float]) -> float | None:
    return max(values, default=None)
