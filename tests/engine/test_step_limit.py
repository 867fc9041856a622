"""How long a step may take follows from what steps have taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.engine.step_limit import LEAST_S, StepLimits

CEILING_S = 120.0


@pytest.fixture
def limits() -> StepLimits:
    return StepLimits(CEILING_S)


def test_without_any_step_only_the_option_limits(limits: StepLimits) -> None:
    assert limits.limit_s(1) == CEILING_S


def test_fast_steps_have_the_smallest_limit(limits: StepLimits) -> None:
    for _ in range(3):
        limits.note(1, 0.003)

    assert limits.limit_s(1) == LEAST_S


def test_slow_steps_may_take_twenty_times_as_long(limits: StepLimits) -> None:
    for took_s in (0.4, 1.0, 0.6):
        limits.note(200, took_s)

    assert limits.limit_s(200) == pytest.approx(20.0, rel=0.01)


def test_a_new_size_is_judged_by_a_smaller_one(limits: StepLimits) -> None:
    for _ in range(3):
        limits.note(1, 0.05)

    assert limits.limit_s(64) == pytest.approx(20 * 0.05 * 64)


def test_a_new_size_has_time_to_compile_its_kernels(limits: StepLimits) -> None:
    for _ in range(3):
        limits.note(1, 0.001)

    assert limits.limit_s(2) == 30.0


def test_one_slow_step_is_forgotten(limits: StepLimits) -> None:
    limits.note(1, 5.0)
    for _ in range(5000):
        limits.note(1, 0.003)

    assert limits.limit_s(1) == LEAST_S


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.floats(0.0, 300.0)), max_size=50),
    st.integers(1, 4096),
)
def test_no_limit_is_above_the_option_or_below_the_smallest(
    steps: list[tuple[int, float]], num_tokens: int
) -> None:
    limits = StepLimits(CEILING_S)
    for size, took_s in steps:
        limits.note(size, took_s)

    assert LEAST_S <= limits.limit_s(num_tokens) <= CEILING_S
