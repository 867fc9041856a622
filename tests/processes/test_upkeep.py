"""Periodic work of one process is done at the same moments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.processes.upkeep import until_next


@given(st.floats(0, 1e7), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_work_is_done_at_multiples_of_its_interval(now_s: float, interval_s: float) -> None:
    sleep_s = until_next(interval_s, lambda: now_s)

    at = (now_s + sleep_s) / interval_s
    assert at == pytest.approx(round(at), abs=1e-6)
    assert 0.2 * interval_s <= sleep_s <= 1.2 * interval_s


def test_work_without_an_interval_does_not_wait() -> None:
    assert until_next(0.0) == 0.0
