"""Baselines of quotas are the sums of usage records of their window, in whichever table. Baselines
of buckets follow from the records of the last periods."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil
from operator import add
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase
from usage_builders import settlement

from tests.examples import examples
from vinery_accounts.limits import recovery
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.recovery import read_baselines, read_bucket_baselines
from vinery_accounts.limits.reservations import ActualUsage, Lease, ReservationRequest
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window
from vinery_accounts.limits.windows import quota_window
from vinery_accounts.models import UsageRecord
from vinery_accounts.usage import upkeep
from vinery_accounts.usage.entries import Settlement, Weights
from vinery_accounts.usage.store import store_settlements

pytestmark = pytest.mark.stores

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)  # of the day on which Berlin's clocks change
# Three zones have midnights that are not at a whole hour of UTC.
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns"]
COLUMNS = {"key": "key_id", "user": "user_id", "project": "project_id"} | {
    "organization": "organization_id",
    "model": "model",
}


def request(number: int, at: datetime, owner: int | None, model: str, **used: Any) -> Settlement:
    ids = {f"{kind}_id": owner for kind in ("key", "user", "project", "organization")}
    none = {"num_prompt_tokens": 0, "num_cached_tokens": 0, "num_output_tokens": 0}
    return settlement(f"r{number}", started_at=at, model=model, **ids, **{**none, **used})


def in_rows(rule: Rule, now: datetime, records: Iterable[UsageRecord] | None = None) -> int:
    """Return the sum over the records, one by one. None: read them first."""
    kind, _, owner = rule.scope.partition(":")
    since = datetime.fromtimestamp(quota_window(rule, now.timestamp())[0] / 1000, UTC)
    rows = [
        row
        for row in (UsageRecord.objects.all() if records is None else records)
        if row.created_at >= since
        and row.num_prompt_tokens
        and (not owner or str(getattr(row, COLUMNS[kind])) == owner)
    ]
    amounts = {
        Metric.REQUESTS: len(rows),
        Metric.TOKENS: sum(row.num_prompt_tokens + row.num_output_tokens for row in rows),
        Metric.INPUT_TOKENS: sum(row.num_prompt_tokens for row in rows),
        Metric.OUTPUT_TOKENS: sum(row.num_output_tokens for row in rows),
        Metric.WEIGHTED_TOKENS: ceil(round(sum(row.weighted_tokens for row in rows), 6)),
        Metric.COST: ceil(round(sum(row.cost for row in rows), 6)),
    }
    return amounts[rule.metric]


def all_rules(scopes: Sequence[str], zones: Sequence[str]) -> list[Rule]:
    days = [Weekday.MONDAY, Weekday.SATURDAY]
    windows = [
        *((window, zone, days[0]) for window in (Window.DAY, Window.MONTH) for zone in zones),
        *((Window.WEEK, zone, day) for day in days for zone in zones),
    ]
    metrics = [metric for metric in Metric if metric is not Metric.CONCURRENCY]
    kinds = [(metric, *window) for metric in metrics for window in windows]
    kinds.append((Metric.WEIGHTED_TOKENS, Window.NONE, "UTC", days[0]))
    return [
        Rule(number, scope, metric, window, 10**9, zone, week_start=day)
        for number, (scope, (metric, window, zone, day)) in enumerate(
            (scope, kind) for scope in scopes for kind in kinds
        )
    ]


SCOPES = ["platform", "key:1", "user:2", "project:1", "organization:2", "model:tiny"]
# When the windows of these rules have begun, in seconds from noon.
STARTS_S = sorted(
    {
        quota_window(rule, NOON.timestamp())[0] / 1000 - NOON.timestamp()
        for rule in all_rules(["platform"], ZONES)
        if rule.window is not Window.NONE
    }
)
requests = st.builds(
    lambda offset_s, **more: {"at": NOON + timedelta(seconds=offset_s), **more},
    offset_s=st.floats(-32 * 86_400, 3600)
    | st.builds(add, st.sampled_from(STARTS_S), st.floats(-3600, 3600)),
    owner=st.sampled_from([1, 2, None]),
    model=st.sampled_from(["tiny", "other"]),
    num_prompt_tokens=st.integers(0, 3),
    weighted_tokens=st.sampled_from([0.0, 0.1, 0.7, 3.0]),
)


class BaselinesTest(HypothesisTestCase):
    """The records are of random requests."""

    @settings(max_examples=examples(12), deadline=None)
    @given(
        requests_=st.lists(requests, max_size=30),
        zones=st.lists(st.sampled_from(ZONES), min_size=2, max_size=2, unique=True),
    )
    def test_roll_ups_and_records_have_the_same_sums(
        self, requests_: list[dict[str, Any]], zones: list[str]
    ) -> None:
        rows = []
        for number, values in enumerate(requests_):
            # A request that no engine took has no tokens at all.
            is_taken = values["num_prompt_tokens"] > 0
            more = {"num_output_tokens": 5, "cost": 0.3}
            more = more if is_taken else {"weighted_tokens": 0.0}
            rows.append(request(number, **{**values, **more}))
        store_settlements(rows)
        rules = all_rules(SCOPES, zones)

        baselines = {each.rule: each for each in read_baselines(rules, NOON.timestamp())}

        records = list(UsageRecord.objects.all())
        for rule in rules:
            num_used = baselines[rule].num_used if rule in baselines else 0
            assert num_used == in_rows(rule, NOON, records), rule
        assert all(baseline.num_used for baseline in baselines.values())


# -- Buckets


BUCKETS = (
    Rule(1, "platform", Metric.TOKENS, Window.MINUTE, 60),
    Rule(2, "key:1", Metric.REQUESTS, Window.MINUTE, 4),
    Rule(3, "model:tiny", Metric.INPUT_TOKENS, Window.MINUTE, 50),
    Rule(4, "user:1", Metric.WEIGHTED_TOKENS, Window.MINUTE, 70),
)
WEIGHTS = Weights(uncached_milli=333, output_milli=1250)
# A pause before each request, in ms, and its tokens. Some pauses are shorter than what it takes
# to refill, and some longer.
arrivals = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 20_000), st.integers(0, 200_000)),
        st.integers(1, 30),
        st.integers(0, 30),
    ),
    max_size=40,
)


class BucketBaselinesTest(HypothesisTestCase):
    """A limiter grants random requests, and then loses its memory."""

    @settings(max_examples=examples(40), deadline=None)
    @given(arriving=arrivals, rest_ms=st.integers(0, 70_000))
    def test_no_less_than_was_used_is_used_again_and_no_more_after_a_minute_of_rest(
        self, arriving: list[tuple[int, int, int]], rest_ms: int
    ) -> None:
        now_ms = round(NOON.timestamp() * 1000)
        limiter = MemoryLimiter(clock=lambda: (now_ms + 0.5) / 1000)
        rows = []
        for number, (pause_ms, num_input, num_output) in enumerate(arriving):
            now_ms += pause_ms
            name, counts = f"r{number}", (num_input, num_output)
            asked = ReservationRequest(*counts, lease_id=name, rules=BUCKETS, weights=WEIGHTS)
            spent = ActualUsage(*counts)
            if isinstance(lease := asyncio.run(limiter.acquire(asked)), Lease):
                limiter.settle_now(lease, spent)
                at = datetime.fromtimestamp(now_ms / 1000, UTC)
                used = {"num_prompt_tokens": num_input, "num_output_tokens": num_output}
                weighted = spent.weighted_tokens(WEIGHTS)
                rows.append(request(number, at, 1, "tiny", weighted_tokens=weighted, **used))
        now_ms += rest_ms
        store_settlements(rows)

        read = read_bucket_baselines(BUCKETS, now_ms / 1000)
        baselines = {each.rule: each.num_used for each in read}

        since_ms = now_ms - 5 * 60_000
        came_ms = [round(row.admission.started_at.timestamp() * 1000) for row in rows]
        moments_ms = [since_ms, *(each for each in came_ms if each >= since_ms), now_ms]
        has_rested = any(after - before >= 60_000 for before, after in pairwise(moments_ms))
        for level in asyncio.run(limiter.levels(BUCKETS)):
            found = baselines.get(level.rule, 0)
            assert level.num_used <= found <= level.rule.amount
            assert found == level.num_used or not has_rested


def test_a_bucket_counts_its_own_requests_alone(db: None, django_assert_num_queries: Any) -> None:
    store_settlements(
        [
            request(1, NOON, 1, "tiny", num_prompt_tokens=20),
            request(2, NOON, 2, "other", num_prompt_tokens=3),
            request(3, NOON, None, "tiny", num_prompt_tokens=1),
            request(4, NOON, 1, "tiny"),  # which no engine took
        ]
    )
    scopes = ["platform", "key:1", "user:2", "project:3", "organization:2", "model:tiny"]
    rules = [
        Rule(number, scope, metric, Window.MINUTE, 60)
        for number, (scope, metric) in enumerate(
            (scope, metric) for scope in scopes for metric in (Metric.TOKENS, Metric.REQUESTS)
        )
    ]
    quota = Rule(99, "platform", Metric.TOKENS, Window.DAY, 60)

    baselines = read_bucket_baselines([*rules, quota], NOON.timestamp() + 2)

    found = {(each.rule.scope, each.rule.metric.value): each.num_used for each in baselines}
    assert found == {
        ("platform", "tokens"): 22,
        ("platform", "requests"): 1,
        ("key:1", "tokens"): 18,
        ("user:2", "tokens"): 1,
        ("organization:2", "tokens"): 1,
        ("model:tiny", "tokens"): 19,
    }
    assert {baseline.since_ms for baseline in baselines} == {round(NOON.timestamp() * 1000) + 2000}

    with django_assert_num_queries(0):
        assert read_bucket_baselines([Rule(1, "platform", Metric.TOKENS, Window.DAY, 9)], 0.0) == []


def test_each_end_user_of_a_project_has_a_baseline_of_what_they_used(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (("ann", 1), ("bob", 1), ("ann", 2), ("", 1), ("bob", 1), ("cy", 1))
    store_settlements(
        [
            request(
                n, NOON + timedelta(seconds=n), owner, "tiny", num_prompt_tokens=9, end_user=who
            )
            for n, (who, owner) in enumerate(rows)
        ]
    )
    day = Rule(1, "end_user:1", Metric.TOKENS, Window.DAY, 100)
    minute = Rule(2, "end_user:1", Metric.TOKENS, Window.MINUTE, 60)

    def found(read: Any, *rules: Rule) -> dict[Rule, int]:
        return {each.rule: each.num_used for each in read(rules, NOON.timestamp() + 6)}

    ann, bob, cy = (day.of_end_user(name) for name in ("ann", "bob", "cy"))
    assert list(found(read_baselines, day).items()) == [(ann, 9), (bob, 18), (cy, 9)]
    other = Rule(3, "project:1", Metric.TOKENS, Window.DAY, 100)
    assert found(read_baselines, day, other) == {ann: 9, bob: 18, cy: 9, other: 45}
    left = {"ann": 3, "bob": 13, "cy": 8}
    expected = {minute.of_end_user(name): num_used for name, num_used in left.items()}
    assert found(read_bucket_baselines, minute) == expected
    monkeypatch.setattr(recovery, "_MAX_END_USERS", 2)
    assert found(read_baselines, day) == {bob: 18, cy: 9}


def store_ones(*moments: datetime) -> None:
    """Requests with a token, at these moments."""
    store_settlements(
        [request(number, at, 1, "tiny", num_prompt_tokens=1) for number, at in enumerate(moments)]
    )


def test_a_month_is_whole_without_its_minutes_and_first_rows(db: None) -> None:
    # A request each four hours and a quarter, at any second, since the first of the month.
    start = NOON.replace(day=1) - timedelta(days=3)
    store_ones(*(start + timedelta(minutes=255 * n, seconds=n % 60) for n in range(170)))
    months = [Rule(1, "key:1", Metric.REQUESTS, Window.MONTH, 10**9, zone) for zone in ZONES]
    expected = [in_rows(rule, NOON) for rule in months]
    upkeep.delete_old({"by_minute": 7}, NOON)
    found = [read_baselines([rule], NOON.timestamp()) for rule in months]
    assert [each.num_used for baselines in found for each in baselines] == expected
    assert min(expected) > 100

    of_whole_hours = [rule for rule in months if rule.time_zone in ("UTC", "Europe/Berlin")]
    rows = {rule: in_rows(rule, NOON) for rule in of_whole_hours}
    upkeep.delete_old({"rows": 14, "by_minute": 7}, NOON)
    for rule in of_whole_hours:
        assert in_rows(rule, NOON) < rows[rule]
        [baseline] = read_baselines([rule], NOON.timestamp())
        assert baseline.num_used == rows[rule]
