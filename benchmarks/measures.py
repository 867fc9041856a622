"""The figures of a run, in the same terms for both sides.

A *chunk* is output that arrived at one moment: one read of a handle in the bare loop, one event
with text over HTTP. A chunk may hold several tokens, and HTTP does not show how many, but only
gives the sum at the end. So a stream counts each chunk as the stream's mean of tokens, and the gap
for each token is the gap between two chunks divided by that mean. Where every chunk is one token
the gap is exact; merged chunks flatter the high percentiles, and therefore the real gaps between
chunks stand beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Stream:
    """An answer. Times are seconds on the clock of the measuring side."""

    started_s: float  # when the request was handed over
    chunks_s: tuple[float, ...]  # when each chunk arrived, in order
    num_prompt_tokens: int
    num_tokens: int
    text: str

    def __post_init__(self) -> None:
        if not self.chunks_s:
            raise ValueError("an answer without any output cannot be measured")

    @property
    def first_token_s(self) -> float:
        return self.chunks_s[0] - self.started_s

    @property
    def chunk_gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.chunks_s)]

    @property
    def token_gaps_s(self) -> list[float]:
        tokens_per_chunk = self.num_tokens / len(self.chunks_s)
        return [gap / tokens_per_chunk for gap in self.chunk_gaps_s]


@dataclass(frozen=True)
class Run:
    """All streams of a run, and the costs beside the engine.

    `web_cpu_s` is None without a web process.
    """

    streams: tuple[Stream, ...]
    web_cpu_s: float | None = None
    client_cpu_s: float | None = None

    @property
    def num_tokens(self) -> int:
        return sum(stream.num_tokens for stream in self.streams)

    @property
    def duration_s(self) -> float:
        """From the first request to the last chunk."""
        began = min(stream.started_s for stream in self.streams)
        return max(stream.chunks_s[-1] for stream in self.streams) - began


@dataclass(frozen=True)
class Summary:
    """A run in a line of the report, in milliseconds and microseconds."""

    num_tokens: float
    tokens_per_s: float
    first_token_p50_ms: float
    first_token_p99_ms: float
    token_gap_p50_ms: float
    token_gap_p99_ms: float
    chunk_gap_p50_ms: float
    chunk_gap_p99_ms: float
    web_cpu_us_per_token: float | None
    client_cpu_us_per_token: float | None


def summary(run: Run) -> Summary:
    first_s = [stream.first_token_s for stream in run.streams]
    token_gaps_s = list(chain.from_iterable(stream.token_gaps_s for stream in run.streams))
    chunk_gaps_s = list(chain.from_iterable(stream.chunk_gaps_s for stream in run.streams))
    return Summary(
        num_tokens=run.num_tokens,
        tokens_per_s=run.num_tokens / run.duration_s,
        first_token_p50_ms=percentile_ms(first_s, 50),
        first_token_p99_ms=percentile_ms(first_s, 99),
        token_gap_p50_ms=percentile_ms(token_gaps_s, 50),
        token_gap_p99_ms=percentile_ms(token_gaps_s, 99),
        chunk_gap_p50_ms=percentile_ms(chunk_gaps_s, 50),
        chunk_gap_p99_ms=percentile_ms(chunk_gaps_s, 99),
        web_cpu_us_per_token=_per_token_us(run.web_cpu_s, run.num_tokens),
        client_cpu_us_per_token=_per_token_us(run.client_cpu_s, run.num_tokens),
    )


def percentile_ms(values_s: Sequence[float], percent: float) -> float:
    """0 when there are no values (one-token answers have no gaps)."""
    return float(np.percentile(values_s, percent)) * 1e3 if values_s else 0.0


def medians(summaries: Sequence[Summary]) -> Summary:
    """Field by field; None where any round has None."""
    rows = [asdict(each) for each in summaries]
    columns: dict[str, Any] = {name: _median(row[name] for row in rows) for name in rows[0]}
    return Summary(**columns)


def num_same_texts(one: Run, other: Run) -> int:
    """Return the number of streams with equal text on both sides."""
    pairs = zip(one.streams, other.streams, strict=True)
    return sum(a.text.strip() == b.text.strip() for a, b in pairs)


def _median(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else float(np.median(np.array(known, np.float64)))


def _per_token_us(cpu_s: float | None, num_tokens: int) -> float | None:
    return None if cpu_s is None else cpu_s * 1e6 / num_tokens
