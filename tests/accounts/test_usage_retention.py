"""Old usage records and roll-ups are deleted, and reports stay the same."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from django.db import models
from usage_builders import NOON, settlement, store

from vinery_accounts.models import DayRollup, HourRollup, MinuteRollup, RefusedRequest, UsageRecord
from vinery_accounts.usage import retention
from vinery_accounts.usage.entries import BoundLimit, Outcome
from vinery_accounts.usage.histogram import Percentiles
from vinery_accounts.usage.reports import Figures, Question, totals
from vinery_accounts.usage.retention import TABLES, delete_old
from vinery_accounts.usage.store import store_settlements

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

USUAL = {"rows": 30, "refusals": 30, "by_minute": 7, "by_hour": 365, "by_day": 0}
AGES = (0, 5, 20, 200, 500)


def fill() -> None:
    bound = BoundLimit(9, "key:12", "tokens", "minute", 1000, 950.0, 80.0, 1.8)
    refused = {"outcome": Outcome.REJECTED, "bound_limits": (bound,)}
    store_settlements(
        [settlement(f"r{age}", started_at=NOON - timedelta(days=age), **refused) for age in AGES]
    )


def all_of_it() -> Figures:
    since, until = NOON - timedelta(days=600), NOON + timedelta(days=1)
    return totals(Question(since=since, until=until, visible=None)).figures


def left(table: type[models.Model]) -> int:
    rows = table._default_manager.all()
    if table in (UsageRecord, RefusedRequest):
        return rows.count()
    return rows.values("start_s").distinct().count()


def test_each_table_has_its_own_retention_of_whole_days() -> None:
    fill()
    deleted = delete_old(USUAL, NOON)
    assert [left(table) for table in (UsageRecord, RefusedRequest)] == [3, 3]
    assert [left(table) for table in (MinuteRollup, HourRollup, DayRollup)] == [2, 4, 5]
    assert deleted["rows"] == deleted["refusals"] == 2
    assert "by_day" not in deleted

    delete_old({"rows": 5, "by_minute": 7}, NOON)
    assert retention.kept_since(UsageRecord) == datetime(2026, 2, 24, tzinfo=UTC)
    assert UsageRecord.objects.filter(request_id="r5").exists()
    # A longer retention does not restore deleted records.
    delete_old({"by_minute": 300}, NOON)
    assert retention.kept_since(MinuteRollup) == datetime(2026, 2, 22, tzinfo=UTC)


def test_totals_stay_after_the_records_are_deleted() -> None:
    fill()
    before = all_of_it()
    delete_old({**USUAL, "by_hour": 1}, NOON)
    assert before.num_requests == len(AGES)
    assert isinstance(before.queue_ms, Percentiles)
    assert all_of_it() == before


def test_requests_from_before_the_records_count_once(caplog: pytest.LogCaptureFixture) -> None:
    fill()
    before = all_of_it()
    delete_old(USUAL, NOON)
    with caplog.at_level(logging.ERROR):
        fill()
    assert all_of_it() == before
    assert "2 requests from before" in caplog.text


def test_a_late_record_within_the_retention_is_counted_without_minutes() -> None:
    fill()
    delete_old(USUAL, NOON)

    store("late", started_at=NOON - timedelta(days=20, hours=2))

    assert all_of_it().num_requests == len(AGES) + 1
    assert left(HourRollup) == 5


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_batches_of_any_size_delete_the_same_rows(batch_size: int) -> None:
    fill()

    delete_old(dict.fromkeys(TABLES, 10), NOON, batch_size=batch_size)

    assert [left(table) for table in TABLES.values()] == [2] * len(TABLES)
