"""Bucket arithmetic: the numbers that OpenAI's API was seen to send follow from one formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.limits.buckets import MINUTE_MS, full_after_s, used_after, wait_s
from accounts.limits.wording import duration

MONTH_MS = 30 * 86_400_000


@pytest.mark.parametrize(
    ("limit", "remaining", "reset"),
    [
        (5_000, 4_999, "12ms"),
        (160_000, 159_976, "9ms"),
        (3_000, 2_999, "20ms"),
        (250_000, 249_989, "2ms"),
    ],
)
def test_resets_that_openai_was_seen_to_tell(limit: int, remaining: int, reset: str) -> None:
    full_after = full_after_s((limit - remaining) * MINUTE_MS, limit)

    assert full_after is not None
    assert duration(full_after) == reset


@pytest.mark.parametrize(
    ("limit", "used", "requested", "period_ms", "wait"),
    [
        (50_000, 47_949, 3_006, MINUTE_MS, "1.146s"),
        (30_000, 22_999, 12_528, MINUTE_MS, "11.054s"),
        (200_000, 195_869, 4_412, MINUTE_MS, "84ms"),
        (30_000, 14_567, 24_754, MINUTE_MS, "18.642s"),
        (30_000, 18_928, 11_159, MINUTE_MS, "174ms"),
        (100_000, 96_749, 19_126, MONTH_MS, "114h18m0s"),
    ],
)
def test_waits_that_openai_was_seen_to_tell(
    limit: int, used: int, requested: int, period_ms: int, wait: str
) -> None:
    told = wait_s(used * period_ms, requested * period_ms, limit, period_ms)

    assert told is not None
    assert duration(told) == wait


def test_what_can_never_fit_has_no_wait() -> None:
    assert wait_s(0, 101 * MINUTE_MS, 100) is None
    assert wait_s(0, 100 * MINUTE_MS, 100) == 0.0


def test_a_bucket_that_never_refills_has_no_reset() -> None:
    assert full_after_s(1, 0) is None
    assert full_after_s(0, 0) == 0.0


@given(
    used=st.integers(0, 10**13),
    amount=st.integers(0, 10**6),
    times_ms=st.lists(st.integers(0, 10_000)),
)
def test_looking_often_refills_no_more_and_no_less(
    used: int, amount: int, times_ms: list[int]
) -> None:
    step_by_step = used
    for time_ms in times_ms:
        step_by_step = used_after(step_by_step, amount, time_ms)

    assert step_by_step == used_after(used, amount, sum(times_ms))


def test_a_clock_that_was_set_back_refills_nothing() -> None:
    assert used_after(500, 60, -1_000) == 500
