"""The comparison: both sides in turn, on the same prompts, and the ratios of each round.

A round is a run of each side, the second right after the first. The order changes from round to
round: a machine that slows down or warms up favours neither side. Ratios are taken within a round;
reported are the median, the lowest and the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from benchmarks.measures import Run, Summary, medians, num_same_texts, summary
from benchmarks.prompts import Prompt, PromptSource

Show = Callable[[str], None]

# Long enough to pass the prefill and a few steps, short enough to ask many times.
_FIRST_TOKEN_MAX_TOKENS = 4
_WARM_UP_MAX_TOKENS = 8


class Side(Protocol):
    """The bare engine or the server."""

    def run(self, prompts: list[Prompt], max_tokens: int) -> Run:
        """Answer all prompts at once."""


@dataclass(frozen=True)
class Spread:
    """The median of values, with the lowest and the highest."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Point:
    """The figures at `num_streams`. `same_texts` is the part of equal answers, 0..1."""

    num_streams: int
    throughput_ratio: Spread  # server by bare
    token_gap_p50_ratio: Spread
    token_gap_p99_ratio: Spread
    same_texts: float
    bare: Summary  # medians over the rounds
    server: Summary
    bare_rounds: tuple[Summary, ...]
    server_rounds: tuple[Summary, ...]


@dataclass(frozen=True)
class FirstToken:
    """Time to the first token of single requests, bare and server in turn."""

    num_requests: int
    bare_p50_ms: float
    server_p50_ms: float
    added_ms: Spread  # server minus bare; its lowest and highest are the quartiles


@dataclass(frozen=True)
class ModelResult:
    """All that was measured with one model."""

    model: str
    first_token: FirstToken
    points: tuple[Point, ...]


class PromptMismatch(Exception):
    """The server read a prompt of another length than the bare engine."""


@dataclass(frozen=True)
class Comparison:
    """Two sides with the same model loaded, and where their prompts come from."""

    bare: Side
    server: Side
    prompts: PromptSource
    show: Show
    rest: Callable[[], None]  # before each run: lets the other side finish its book-keeping

    def first_token(self, num_requests: int) -> FirstToken:
        """Ask for one answer at a time. Raises PromptMismatch."""
        self._warm_up(1)
        pairs = [self._round(number, 1, _FIRST_TOKEN_MAX_TOKENS) for number in range(num_requests)]
        bare_ms = [bare.streams[0].first_token_s * 1e3 for bare, _ in pairs]
        server_ms = [server.streams[0].first_token_s * 1e3 for _, server in pairs]
        added_ms = sorted(s - b for b, s in zip(bare_ms, server_ms, strict=True))
        quarter = len(added_ms) // 4
        return FirstToken(
            num_requests=num_requests,
            bare_p50_ms=median(bare_ms),
            server_p50_ms=median(server_ms),
            added_ms=Spread(median(added_ms), added_ms[quarter], added_ms[-1 - quarter]),
        )

    def point(self, num_streams: int, max_tokens: int, num_rounds: int) -> Point:
        """Measure one number of streams. Raises PromptMismatch."""
        self._warm_up(num_streams)
        pairs = [self._shown_round(number, num_streams, max_tokens) for number in range(num_rounds)]
        same = sum(num_same_texts(bare, server) for bare, server in pairs)
        bares, servers = (tuple(map(summary, side)) for side in zip(*pairs, strict=True))
        return Point(
            num_streams=num_streams,
            throughput_ratio=_ratio(servers, bares, lambda each: each.tokens_per_s),
            token_gap_p50_ratio=_ratio(servers, bares, lambda each: each.token_gap_p50_ms),
            token_gap_p99_ratio=_ratio(servers, bares, lambda each: each.token_gap_p99_ms),
            same_texts=same / (num_streams * num_rounds),
            bare=medians(bares),
            server=medians(servers),
            bare_rounds=bares,
            server_rounds=servers,
        )

    def _warm_up(self, num_streams: int) -> None:
        self._round(0, num_streams, _WARM_UP_MAX_TOKENS)

    def _shown_round(self, number: int, num_streams: int, max_tokens: int) -> tuple[Run, Run]:
        bare, server = self._round(number, num_streams, max_tokens)
        speeds = [run.num_tokens / run.duration_s for run in (bare, server)]
        self.show(
            f"  {num_streams} streams, round {number + 1}: bare {speeds[0]:.0f} tok/s, "
            f"server {speeds[1]:.0f} tok/s, ratio {speeds[1] / speeds[0]:.3f}"
        )
        return bare, server

    def _round(self, number: int, num_streams: int, max_tokens: int) -> tuple[Run, Run]:
        """Run each side, the bare engine first in even rounds. Returns (bare, server)."""
        prompts = self.prompts.take(num_streams)
        runs: dict[str, Run] = {}
        for name, side in self._order(number):
            self.rest()
            self._wake(side)
            runs[name] = side.run(prompts, max_tokens)
        _check_prompts(runs["bare"], runs["server"])
        return runs["bare"], runs["server"]

    def _wake(self, side: Side) -> None:
        """Ask for a token, not measured. A process that waited has gone cold (clock, caches, on a
        virtual machine its memory), the bare engine more so: the server's engines make a token now
        and then as a probe."""
        side.run(self.prompts.take(1), 1)

    def _order(self, number: int) -> Iterator[tuple[str, Side]]:
        sides = [("bare", self.bare), ("server", self.server)]
        return iter(sides if number % 2 == 0 else reversed(sides))


def _ratio(
    servers: Sequence[Summary], bares: Sequence[Summary], value: Callable[[Summary], float]
) -> Spread:
    pairs = zip(servers, bares, strict=True)
    return Spread.of([value(server) / value(bare) for server, bare in pairs])


def _check_prompts(bare: Run, server: Run) -> None:
    for one, other in zip(bare.streams, server.streams, strict=True):
        if one.num_prompt_tokens != other.num_prompt_tokens:
            raise PromptMismatch(
                f"the server counts {other.num_prompt_tokens} prompt tokens where the bare "
                f"engine was given {one.num_prompt_tokens}"
            )
