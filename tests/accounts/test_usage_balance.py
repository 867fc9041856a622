"""The check of a day's roll-ups against its usage records finds every difference."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase
from usage_builders import NOON, admission, settlement

from accounts.models import DayRollup, HourRollup, MinuteRollup, Rollup, UsageRecord
from accounts.usage import histogram
from accounts.usage.balance import num_verified_rows
from accounts.usage.entries import Outcome, Settlement
from accounts.usage.histogram import Latency
from accounts.usage.rollups import SUMS
from accounts.usage.store import store_settlements

DAY_S = int((NOON - timedelta(hours=12)).timestamp())


def some_requests() -> list[Settlement]:
    """Return two requests in the same minute, and one an hour later with another key."""
    return [
        settlement(
            f"r{number}",
            admission=admission(
                f"r{number}", started_at=NOON + timedelta(minutes=minute), key_id=key_id
            ),
            total_ms=100.0 * (number + 1),
            outcome=Outcome.OK,
        )
        for number, (minute, key_id) in enumerate([(0, 1), (0, 1), (60, 2)])
    ]


requests = st.builds(
    lambda number, offset_s, model, key_id, **changes: settlement(
        f"r{number}",
        admission=admission(
            f"r{number}", started_at=NOON + timedelta(seconds=offset_s), model=model, key_id=key_id
        ),
        **changes,
    ),
    number=st.integers(0, 40),
    offset_s=st.integers(-12 * 3600, 12 * 3600 - 1),
    model=st.sampled_from(["a", "b"]),
    key_id=st.sampled_from([1, 2, None]),
    outcome=st.sampled_from(Outcome),
    http_status=st.sampled_from([200, 404, 500, None]),
    num_output_tokens=st.integers(0, 2000),
    weighted_tokens=st.floats(0, 1e6),
    energy_mj=st.none() | st.integers(0, 10**9),
    total_ms=st.none() | st.floats(0, 1e7),
    inter_token_ms=st.none() | st.floats(0, 1e4),
)


class AnyDay(HypothesisTestCase):
    """Tests with an empty database for each example."""

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.lists(requests, max_size=8), max_size=4))
    def test_stored_records_balance_at_once(self, batches: list[list[Settlement]]) -> None:
        for batch in batches:
            store_settlements(batch)

        assert num_verified_rows(DAY_S) == UsageRecord.objects.count()


@pytest.mark.django_db
@pytest.mark.parametrize("column", SUMS)
@pytest.mark.parametrize("table", [MinuteRollup, HourRollup, DayRollup])
def test_a_sum_that_is_one_too_large_does_not_balance(table: type[Rollup], column: str) -> None:
    store_settlements(some_requests())
    last = table._default_manager.latest("id")

    table._default_manager.filter(pk=last.pk).update(**{column: F(column) + 1})

    assert num_verified_rows(DAY_S) is None


@pytest.mark.django_db
@pytest.mark.parametrize("table", [MinuteRollup, HourRollup, DayRollup])
@pytest.mark.parametrize("counts", [{}, {Latency.TOTAL * histogram.NUM_BUCKETS: 1}])
def test_a_wrong_histogram_does_not_balance(table: type[Rollup], counts: dict[int, int]) -> None:
    store_settlements(some_requests())
    last = table._default_manager.latest("id")

    table._default_manager.filter(pk=last.pk).update(histograms=histogram.encode(counts))

    assert num_verified_rows(DAY_S) is None


@pytest.mark.django_db
@pytest.mark.parametrize("table", [MinuteRollup, HourRollup, DayRollup])
def test_lost_roll_ups_do_not_balance(table: type[Rollup]) -> None:
    store_settlements(some_requests())

    table._default_manager.all().delete()

    assert num_verified_rows(DAY_S) is None


@pytest.mark.django_db
def test_a_lost_record_does_not_balance() -> None:
    store_settlements(some_requests())

    UsageRecord.objects.filter(request_id="r2").delete()

    assert num_verified_rows(DAY_S) is None


@pytest.mark.django_db
def test_a_day_without_records_balances() -> None:
    assert num_verified_rows(DAY_S) == 0
