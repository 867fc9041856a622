"""Streams become numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measures import Run, Stream, medians, num_same_texts, percentile_ms, summary


def stream(*chunks_s: float, num_tokens: int | None = None, text: str = "") -> Stream:
    return Stream(
        started_s=0.0,
        chunks_s=chunks_s,
        num_prompt_tokens=1,
        num_tokens=len(chunks_s) if num_tokens is None else num_tokens,
        text=text,
    )


def test_gaps_are_those_of_tokens() -> None:
    assert stream(0.25, 0.5).first_token_s == 0.25
    merged = stream(1.0, 3.0, 5.0, num_tokens=6)
    assert merged.chunk_gaps_s == [2.0, 2.0]
    assert merged.token_gaps_s == [1.0, 1.0]
    assert summary(Run((stream(0.5),))).token_gap_p99_ms == 0.0


def test_a_run_lasts_from_the_first_request_to_the_last_chunk() -> None:
    result = summary(Run((stream(0.5, 1.0), stream(0.5, 2.0)), web_cpu_s=0.002))

    assert result.tokens_per_s == 2.0
    assert result.web_cpu_us_per_token == 500.0
    assert result.client_cpu_us_per_token is None
    with pytest.raises(ValueError, match="without any output"):
        stream(num_tokens=0)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_lie_within_the_values(values: list[float]) -> None:
    low, high = min(values) * 1e3, max(values) * 1e3

    assert low <= percentile_ms(values, 50) <= percentile_ms(values, 99) <= high * (1 + 1e-12)


def test_a_median_is_taken_field_by_field() -> None:
    rounds = [summary(Run((stream(first, 2.0),), web_cpu_s=1.0)) for first in (0.1, 0.5, 0.3)]

    middle = medians(rounds)

    assert middle.first_token_p50_ms == pytest.approx(300)
    assert middle.web_cpu_us_per_token == 500_000
    without = summary(Run((stream(0.1),), web_cpu_s=None))
    assert medians([*rounds, without]).web_cpu_us_per_token is None


def test_texts_are_the_same_but_for_the_space_around_them() -> None:
    bare = Run((stream(1.0, text=" one two"), stream(1.0, text="three")))
    server = Run((stream(1.0, text="one two"), stream(1.0, text="four")))

    assert num_same_texts(bare, server) == 1
