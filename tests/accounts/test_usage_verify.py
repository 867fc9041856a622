"""Roll-ups equal records after repeats, late journals and kills. Differences are found."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase
from usage_builders import NOON, DatabaseUnavailable, settlement, store

from tests.examples import examples
from vinery_accounts.models import DayRollup, HourRollup, MinuteRollup, UsageRecord
from vinery_accounts.usage import histogram
from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.histogram import Latency
from vinery_accounts.usage.reports import Question, totals
from vinery_accounts.usage.rollups import OF_ROWS
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.upkeep import delete_old, verify

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

EVER = (NOON - timedelta(days=20), NOON + timedelta(days=2))
TODAY = (NOON, NOON + timedelta(hours=2))
THESE_DAYS = (NOON - timedelta(days=2), NOON + timedelta(hours=1))


def differences() -> list[str]:
    return [difference for checked in verify(*TODAY) for difference in checked.differences]


requests = st.builds(
    lambda number, age_s, **changes: settlement(
        f"r{number}", started_at=NOON - timedelta(seconds=age_s), **changes
    ),
    number=st.integers(0, 30),
    age_s=st.integers(0, 2 * 86_400),
    model=st.sampled_from(["a", "b"]),
    key_id=st.sampled_from([1, 2, None]),
    outcome=st.sampled_from(Outcome),
    http_status=st.sampled_from([200, 404, 500, None]),
    num_prompt_tokens=st.integers(0, 9000),
    num_image_tokens=st.integers(0, 5000),
    num_output_tokens=st.integers(0, 2000),
    num_media=st.integers(0, 20),
    num_media_bytes=st.integers(0, 2**40),
    num_media_pixels=st.integers(0, 2**40),
    weighted_tokens=st.floats(0, 1e6),
    total_ms=st.none() | st.floats(0, 1e7),
    inter_token_ms=st.none() | st.floats(0, 1e4),
)
# The fate of a batch: whether its transaction fails, and after how many statements.
deaths = st.none() | st.integers(0, 8)


class AfterAnything(HypothesisTestCase):
    """Tests with an empty database for each example."""

    @settings(max_examples=examples(25), deadline=None)
    @given(
        st.lists(st.tuples(st.lists(requests, max_size=8), deaths), max_size=6),
        st.none() | st.integers(1, 2),
    )
    def test_roll_ups_equal_records_after_repeats_late_journals_and_kills(
        self, batches: list[tuple[list[Settlement], int | None]], keep_days: int | None
    ) -> None:
        for batch, death in batches:
            store_and_perhaps_die(batch, death)
        for batch, _ in batches:  # recovery stores all requests again
            store_settlements(batch)
        result = {each.admission.request_id for batch, _ in batches for each in batch}
        assert set(UsageRecord.objects.values_list("request_id", flat=True)) == result
        summed = UsageRecord.objects.aggregate(**{name: Sum(name, default=0) for name in OF_ROWS})
        if keep_days is not None:
            delete_old({"rows": keep_days, "by_minute": 1}, NOON)
        reported = totals(Question(since=EVER[0], until=EVER[1], visible=None)).figures
        # Sums of fractions depend on the order of addition.
        weighted = summed.pop("weighted_tokens")
        assert reported.weighted_tokens == pytest.approx(weighted, abs=1e-3)
        assert {name: getattr(reported, name) for name in summed} == summed
        checked = list(verify(*THESE_DAYS))
        assert [each.differences for each in checked] == [()] * len(checked)
        assert sum(each.num_rows for each in checked) == UsageRecord.objects.count()


def store_and_perhaps_die(batch: Sequence[Settlement], death: int | None) -> None:
    num_done = 0

    def dies(execute: Any, sql: str, *args: Any) -> Any:
        nonlocal num_done
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            if num_done == death:
                raise DatabaseUnavailable
            num_done += 1
        return execute(sql, *args)

    with suppress(DatabaseUnavailable), connection.execute_wrapper(dies):
        store_settlements(batch)


def test_a_wrong_sum_and_a_roll_up_without_records_are_found_and_histograms_joined() -> None:
    store("r1", "r2")
    HourRollup.objects.filter(slice__dimensions="all").update(num_output_tokens=61)
    [difference] = differences()
    assert difference.startswith("hour 2026-03-01 12:00 all: ")
    assert "alice / laptop / reference-chat / chat/completions / ok: num_output" in difference
    assert "num_output_tokens is 60 in the records and 61 in the roll-ups" in difference
    repaired = [each.differences for each in verify(*TODAY, repair=True)]
    assert sum(map(len, repaired)) == 1
    assert differences() == []

    for number in range(3):
        store(f"h{number}", total_ms=5.0 - number)
    assert differences() == []
    UsageRecord.objects.filter(request_id="r2").delete()
    found = differences()
    assert {each.split()[0] for each in found} == {"minute", "hour", "day"}
    assert all(
        any(f" {column} is " in each for each in found) for column in ("num_requests", "histograms")
    )
    of_one = {Latency.TOTAL * histogram.NUM_BUCKETS: 3}
    for rollups in (MinuteRollup, HourRollup, DayRollup):
        list(verify(*TODAY, repair=True))
        last = rollups.objects.latest("id")
        rollups.objects.filter(pk=last.pk).update(histograms=histogram.encode(of_one))
        [difference] = differences()
        assert difference.endswith("and 3 measured in the roll-ups")


@pytest.mark.django_db(transaction=True)
def test_a_checked_day_blocks_no_writer_and_stays_repaired() -> None:
    """A pager may wait for its user, or end before the last day."""
    store("r1")
    MinuteRollup.objects.update(num_output_tokens=1)

    days = verify(NOON, NOON + timedelta(days=2), repair=True)

    assert next(days).differences
    assert not connection.in_atomic_block
    days.close()
    assert not differences()


def test_only_days_with_all_their_records_are_checked() -> None:
    checked = list(verify(*TODAY))
    assert {(each.num_rows, each.differences) for each in checked} == {(0, ())}

    store("old", started_at=NOON - timedelta(days=15))
    store("young", started_at=NOON - timedelta(days=1))
    delete_old({"rows": 10}, NOON)
    checked = list(verify(*EVER))
    assert min(each.day for each in checked) == NOON - timedelta(days=10, hours=12)
    assert sum(each.num_rows for each in checked) == 1
    assert not any(each.differences for each in checked)


DAY = datetime(2026, 3, 1, tzinfo=UTC)
NUM_REQUESTS = 200


def numbered(number: int) -> Settlement:
    return settlement(
        f"r{number}",
        user_id=number % 3,
        key_id=number % 5,
        model=f"m{number % 2}",
        started_at=DAY + timedelta(hours=12, seconds=7 * number),
        num_output_tokens=number,
        total_ms=10.0 + number,
    )


def store_all(seed: int) -> None:
    """Store all settlements. The seed sets their order and batches."""
    numbers = list(range(NUM_REQUESTS))
    random.Random(seed).shuffle(numbers)
    try:
        for at in range(0, NUM_REQUESTS, 20):
            store_settlements([numbered(number) for number in numbers[at : at + 20]])
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_concurrent_writers_count_each_request_once() -> None:
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(store_all, range(4)))

    [checked] = verify(DAY, DAY + timedelta(days=1))
    question = Question(since=DAY, until=DAY + timedelta(days=1), visible=None)
    figures = totals(question).figures
    assert (checked.num_rows, checked.differences) == (NUM_REQUESTS, ())
    assert figures.num_requests == figures.total_ms.num == NUM_REQUESTS
    assert figures.num_output_tokens == sum(range(NUM_REQUESTS))
