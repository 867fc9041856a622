"""What the engines of a model do now, for the API and the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineWork:
    """What an engine does now."""

    num_running: int
    num_waiting: int
    prompt_tokens_per_s: float = 0.0  # of the last 10 s
    output_tokens_per_s: float = 0.0
    # The median and the 95th percentile of the last requests; None: there was none.
    first_token_s: tuple[float, float] | None = None
    inter_token_s: tuple[float, float] | None = None
    cache_usage: float = 0.0  # the used part of `cache_bytes`, 0 to 1
    cache_bytes: int = 0  # allocated for the KV cache
    prefix_hit_rate: float | None = None  # since its start; None: no prompt
    draft_acceptance: float | None = None  # since its start; None: no draft tokens

    @classmethod
    def of_all(cls, engines: Sequence[EngineWork]) -> EngineWork:
        """Return the work of several engines: sums, the longest times, and means of parts."""
        if len(engines) == 1:
            return engines[0]
        cache_bytes = sum(each.cache_bytes for each in engines)
        return cls(
            num_running=sum(each.num_running for each in engines),
            num_waiting=sum(each.num_waiting for each in engines),
            prompt_tokens_per_s=sum(each.prompt_tokens_per_s for each in engines),
            output_tokens_per_s=sum(each.output_tokens_per_s for each in engines),
            first_token_s=_longest([each.first_token_s for each in engines]),
            inter_token_s=_longest([each.inter_token_s for each in engines]),
            cache_usage=sum(each.cache_usage * each.cache_bytes for each in engines)
            / max(1, cache_bytes),
            cache_bytes=cache_bytes,
            prefix_hit_rate=_mean([each.prefix_hit_rate for each in engines]),
            draft_acceptance=_mean([each.draft_acceptance for each in engines]),
        )


def _longest(times_s: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [each for each in times_s if each is not None]
    return (max(p50 for p50, _ in known), max(p95 for _, p95 in known)) if known else None


def _mean(parts: Sequence[float | None]) -> float | None:
    known = [each for each in parts if each is not None]
    return sum(known) / len(known) if known else None
