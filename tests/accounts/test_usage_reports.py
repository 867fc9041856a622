"""Reports equal the sums of the records, for any period, filter, group, time zone and reader."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase
from usage_builders import NOON, settlement, store

from tests.examples import examples
from vinery_accounts.models import HourRollup, MinuteRollup, UsageRecord
from vinery_accounts.usage import upkeep
from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.filters import Conditions, Dimension
from vinery_accounts.usage.histogram import RELATIVE_ERROR
from vinery_accounts.usage.periods import Granularity, TooManyPoints
from vinery_accounts.usage.reports import Question, groups, series, totals
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.upkeep import write_spans

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata"]


def day(**changes: Any) -> Question:
    """Return a question of a superuser about 1 March 2026."""
    start = NOON - timedelta(hours=12)
    usual: dict[str, Any] = {"since": start, "until": start + timedelta(days=1), "visible": None}
    return Question(**(usual | changes))


ids = st.sampled_from([1, 2, None])
requests = st.builds(
    lambda number, offset_s, outcome, failed_with, **changes: settlement(
        f"r{number}",
        started_at=NOON + timedelta(seconds=offset_s),
        outcome=outcome,
        http_status=200 if outcome is Outcome.OK else failed_with,
        finish_reason="quota_exceeded" if number % 7 == 0 else "",
        **changes,
    ),
    number=st.integers(0, 60),
    offset_s=st.integers(-40 * 86_400, 5 * 86_400),
    outcome=st.sampled_from([Outcome.OK, Outcome.FAILED, Outcome.REJECTED]),
    # Not 404: a refused request for an unknown model has no model in slices.
    failed_with=st.sampled_from([400, 429, 499, 500, None]),
    key_id=ids,
    user_id=ids,
    project_id=ids,
    organization_id=ids,
    end_user=st.sampled_from(["", "ann", "ben"]),
    model=st.sampled_from(["a", "b"]),
    endpoint=st.sampled_from(["x", "y"]),
    num_output_tokens=st.integers(0, 1000),
    total_ms=st.none() | st.floats(1, 1e5),
)


def some_of(values: Sequence[object], max_size: int = 1) -> st.SearchStrategy[frozenset[object]]:
    return st.frozensets(st.sampled_from(values), min_size=1, max_size=max_size)


some_ids = st.frozensets(st.sampled_from([1, 2]), max_size=2)
owners = (Dimension.KEY, Dimension.USER, Dimension.PROJECT, Dimension.ORGANIZATION)
questions = st.builds(
    lambda since_s, length_s, **rest: Question(
        since=NOON + timedelta(seconds=since_s),
        until=NOON + timedelta(seconds=since_s + length_s),
        **rest,
    ),
    since_s=st.integers(-45 * 86_400, 5 * 86_400),
    length_s=st.integers(1, 50 * 86_400),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    granularity=st.sampled_from([None, Granularity.HOUR, Granularity.DAY]),
    filters=st.fixed_dictionaries(
        {},
        optional={
            Dimension.KEY: some_of([1, 2, None], 2),
            Dimension.PROJECT: some_of([1, 2, None]),
            Dimension.MODEL: some_of(["a", "b"]),
            Dimension.OUTCOME: some_of(["ok", "failed"]),
            Dimension.STATUS: some_of(["2xx", "4xx", None], 2),
            Dimension.END_USER: some_of(["", "ann"]),
        },
    ),
    visible=st.none() | st.fixed_dictionaries(dict.fromkeys(owners, some_ids)),
)


class AgainstTheRecords(HypothesisTestCase):
    """Tests with an empty database for each example."""

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.lists(requests, max_size=12), max_size=3), questions, st.data())
    def test_reports_are_the_sums_of_the_records(
        self, batches: list[list[Settlement]], question: Question, data: st.DataObject
    ) -> None:
        for batch in batches:
            write_spans(NOON + timedelta(days=5))  # which a later batch may leave short
            store_settlements(batch)
        records = list(UsageRecord.objects.all())
        found = totals(question)
        check = partial(_check, has_times=Dimension.END_USER not in question.filters)
        check(found.figures, rows_of(records, question, found.since, found.until))
        points = series(question)
        assert points[0].since == found.since
        assert points[-1].until == found.until
        for point in points:
            check(point.figures, rows_of(records, question, point.since, point.until))
        by = data.draw(st.lists(st.sampled_from(Dimension), min_size=1, max_size=2, unique=True))
        grouped = groups(question, by, with_points=True, max_groups=100)
        if Dimension.END_USER in by:
            check = partial(_check, has_times=False)
        seen = rows_of(records, question, found.since, found.until)
        values = Counter(values_of(row, by) for row in seen)
        assert {group.values: group.figures.num_requests for group in grouped.groups} == values
        assert grouped.num_groups == len(values)
        for group in grouped.groups:
            check(group.figures, [row for row in seen if values_of(row, by) == group.values])
            num_requests = sum(point.figures.num_requests for point in group.points)
            assert num_requests == group.figures.num_requests


def rows_of(
    records: Iterable[UsageRecord], question: Question, since: datetime, until: datetime
) -> list[UsageRecord]:
    return [
        row
        for row in records
        if since <= row.created_at < until
        and is_meant(row, question.filters)
        and is_visible(row, question.visible)
    ]


def is_meant(row: UsageRecord, filters: Conditions) -> bool:
    return all(value_of(row, each) in values for each, values in filters.items())


def is_visible(row: UsageRecord, visible: Conditions | None) -> bool:
    if visible is None:
        return True
    return any(value_of(row, each) in values for each, values in visible.items())


def values_of(row: UsageRecord, by: Sequence[Dimension]) -> tuple[Any, ...]:
    return tuple(value_of(row, dimension) for dimension in by)


def value_of(row: UsageRecord, dimension: Dimension) -> Any:
    if dimension is Dimension.STATUS:
        return None if row.http_status is None else f"{str(row.http_status)[0]}xx"
    return getattr(row, dimension.column)


def _check(figures: Any, rows: list[UsageRecord], *, has_times: bool) -> None:
    assert figures.num_requests == len(rows)
    rejected = [row for row in rows if row.outcome == Outcome.REJECTED]
    assert figures.num_limited == sum(row.http_status == 429 for row in rejected)
    assert figures.num_client_errors == len(rejected) - figures.num_limited
    assert figures.num_server_errors == sum(row.outcome == Outcome.FAILED for row in rows)
    assert figures.num_errors == len(rejected) + figures.num_server_errors
    assert figures.num_cut_short == sum(row.finish_reason == "quota_exceeded" for row in rows)
    assert figures.num_output_tokens == sum(row.num_output_tokens for row in rows)
    assert figures.num_tokens == sum(row.num_output_tokens + row.num_prompt_tokens for row in rows)
    whole = [row for row in rows if row.outcome == Outcome.OK]
    durations = sorted(row.total_ms for row in whole if row.total_ms is not None)
    if not durations or not has_times:
        assert figures.total_ms is None
        return
    assert figures.total_ms.num == len(durations)
    exact = durations[math.ceil(len(durations) * 0.95) - 1]
    assert figures.total_ms.p95 == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-6)


def test_a_question_has_a_length_a_zone_few_points_and_only_what_its_reader_may_see() -> None:
    store("r1", user_id=7)
    assert totals(day(visible={})).figures.num_requests == 0
    assert groups(day(visible={}), [Dimension.MODEL]).groups == ()
    assert totals(day(visible={Dimension.USER: frozenset({7})})).figures.num_requests == 1

    with pytest.raises(ValueError, match="ends before it begins"):
        day(until=NOON - timedelta(days=1))
    with pytest.raises(ValueError, match="need a time zone"):
        day(since=datetime(2026, 1, 1))
    with pytest.raises(TooManyPoints):
        series(day(since=NOON - timedelta(days=90), granularity=Granularity.HOUR))


def test_the_largest_groups_come_first_and_the_others_are_counted() -> None:
    store("a0", "a1", "a2", model="often")
    store("b", model="long", num_output_tokens=10_000)
    store("c", model="rare")

    by_requests = groups(day(), [Dimension.MODEL], max_groups=2)
    by_tokens = groups(day(), [Dimension.MODEL], max_groups=1, largest="num_tokens")

    assert [group.values for group in by_requests.groups] == [("often",), ("long",)]
    assert by_requests.num_groups == 3
    assert [group.names for group in by_tokens.groups] == [("long",)]
    with pytest.raises(KeyError):
        groups(day(), [Dimension.MODEL], largest="id")


def test_a_group_has_the_latest_name_of_its_id() -> None:
    store("r1", key_id=4, key_name="old")
    store("r2", key_id=4, key_name="new")
    store("r3", key_name="")

    found = groups(day(), [Dimension.KEY])

    names = {group.values: group.names for group in found.groups}
    assert names == {(4,): ("new",), (None,): ("",)}


def test_status_classes_have_names_and_days_follow_the_reader_s_time_zone() -> None:
    for number, status in enumerate([200, 400, 429, 429, None]):
        store(f"r{number}", http_status=status)
    found = groups(day(), [Dimension.STATUS])
    assert [(group.values, group.names, group.figures.num_requests) for group in found.groups] == [
        (("4xx",), ("4xx",), 3),
        (("2xx",), ("2xx",), 1),
        ((None,), ("",), 1),
    ]

    berlin = ZoneInfo("Europe/Berlin")
    store("late", started_at=datetime(2026, 3, 1, 23, 30, tzinfo=UTC))
    since, until = (datetime(2026, 3, number, tzinfo=berlin) for number in (1, 4))
    march = day(since=since, until=until, zone=berlin, granularity=Granularity.DAY)
    assert [point.figures.num_requests for point in series(march)] == [5, 1, 0]


def test_a_series_has_empty_points_and_a_month_only_days(django_assert_num_queries: Any) -> None:
    store("r1")
    store("r2", started_at=NOON + timedelta(hours=2))
    points = series(day(granularity=Granularity.HOUR))
    assert len(points) == 24
    assert [point.figures.num_requests for point in points[11:16]] == [0, 1, 0, 1, 0]

    MinuteRollup.objects.all().delete()
    HourRollup.objects.all().delete()
    month = day(since=NOON - timedelta(days=20, hours=12))
    # One query for the retention, one for the spans, one for the sums.
    with django_assert_num_queries(3):
        assert totals(month).figures.num_requests == 2


@pytest.mark.parametrize(
    ("age", "widened_to"),
    [
        (timedelta(days=3), timedelta(minutes=1)),
        (timedelta(days=20), timedelta(hours=1)),
        (timedelta(days=500), timedelta(days=1)),
    ],
)
def test_a_period_is_widened_to_the_kept_units(age: timedelta, widened_to: timedelta) -> None:
    store("r1", started_at=NOON - age)
    upkeep.delete_old({"rows": 10, "by_minute": 7, "by_hour": 365}, NOON)

    found = totals(day(since=NOON - age, until=NOON - age + timedelta(seconds=1)))

    assert found.until - found.since == widened_to
    assert found.figures.num_requests == 1
