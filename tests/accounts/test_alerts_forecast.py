"""Forecasts of the time at which a quota is used up, from its window and the last days."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_accounts.alerts.quotas import BEFORE_S, DAY_S, Use, runs_out_at

HOUR_S = 3600.0


def of_day(num_used: int, *, num_before: int = 0, amount: int = 1000) -> Use:
    return Use(amount, num_used, num_before, 0.0, DAY_S)


def test_half_used_in_a_quarter_of_the_day_runs_out_at_half_of_it() -> None:
    assert runs_out_at(of_day(500), 6 * HOUR_S) == pytest.approx(12 * HOUR_S)


def test_a_quota_that_lasts_until_its_reset_does_not_run_out() -> None:
    assert runs_out_at(of_day(200), 6 * HOUR_S) is None
    assert runs_out_at(of_day(0), 6 * HOUR_S) is None


def test_a_used_up_quota_has_run_out_now() -> None:
    assert runs_out_at(of_day(1000), 6 * HOUR_S) == 6 * HOUR_S
    assert runs_out_at(of_day(1200), 6 * HOUR_S) == 6 * HOUR_S


def test_a_busy_week_shortens_the_forecast_of_a_quiet_day() -> None:
    one_hour = HOUR_S
    used_an_hour = (30 + 3000 / 8) / 4  # the week before counts as an eighth of a day: three hours
    assert runs_out_at(of_day(30), one_hour) is None
    runs_out = runs_out_at(of_day(30, num_before=7 * 3000), one_hour)
    assert runs_out == pytest.approx((1 + 970 / used_an_hour) * HOUR_S)


def test_a_quiet_week_does_not_hide_a_busy_afternoon() -> None:
    at_noon = 12 * HOUR_S
    used_an_hour = (800 + 1 / 8) / 15
    assert runs_out_at(of_day(800), at_noon) == pytest.approx(15 * HOUR_S)
    with_week = runs_out_at(of_day(800, num_before=7), at_noon)
    assert with_week == pytest.approx((12 + 200 / used_an_hour) * HOUR_S)


def test_a_budget_without_a_reset_is_forecast_from_the_last_days() -> None:
    use = Use(amount=1000, num_used=300, num_before=70)
    assert runs_out_at(use, 0.0) == pytest.approx(70 * DAY_S)
    assert runs_out_at(Use(amount=1000, num_used=300), 0.0) is None


@given(
    amount=st.integers(1, 10**11),
    num_used=st.integers(0, 10**11),
    num_before=st.integers(0, 10**11),
    at_s=st.floats(0, DAY_S, exclude_max=True),
)
def test_the_forecast_is_before_the_reset_and_sooner_with_more_usage(
    amount: int, num_used: int, num_before: int, at_s: float
) -> None:
    found = runs_out_at(of_day(num_used, num_before=num_before, amount=amount), at_s)
    more = runs_out_at(of_day(num_used + 1, num_before=num_before, amount=amount), at_s)

    assert found is None or at_s <= found < DAY_S
    if found is not None:
        assert more is not None and more <= found + 1e-6


def test_the_last_days_are_a_week() -> None:
    assert BEFORE_S == 7 * DAY_S
