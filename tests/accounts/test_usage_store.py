"""Each settlement is stored as one usage record, and in roll-ups. Old records are deleted, and
reports stay the same."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, models
from usage_builders import NOON, settlement, store

from tests.accounts.key_tables import MakeKey
from tests.tables import table
from vinery_accounts.models import (
    DayRollup,
    HourRollup,
    MinuteRollup,
    ModelWeight,
    RefusedRequest,
    UsageRecord,
    UsageSlice,
)
from vinery_accounts.usage import histogram, rollups, upkeep
from vinery_accounts.usage.entries import BoundLimit, Media, Outcome
from vinery_accounts.usage.histogram import Latency, Percentiles
from vinery_accounts.usage.reports import Figures, Question, totals
from vinery_accounts.usage.rollups import RollupDimensions
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.upkeep import delete_old

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


IDENTITY = (
    {"project_id": 3, "project_name": "search"}
    | {"organization_id": 2, "organization_name": "acme", "ip": "10.0.0.7"}
    | {"asked_model": "chat", "client_request_id": "mine", "num_request_bytes": 300}
    | {"mm_hashes": "00ff 11", "end_user": "ann", "parameters": '{"n":2}'}
)
USED = (
    {"num_image_tokens": 5, "num_video_tokens": 6, "num_audio_tokens": 4, "weighted_tokens": 12.5}
    | {"cost": 7.25}
    | {"num_response_bytes": 4000, "num_continuations": 2}
    | {"num_media": 3, "num_media_bytes": 5000, "num_media_pixels": 6000}
    | {"prefill_ms": 10.5, "inter_token_ms": 7.5}
    | {"fetch_ms": 20.5, "decode_ms": 30.5, "encode_ms": 40.5}
    | {"finish_reason": "stop", "error_code": "none", "error_message": "No ….", "error_param": "n"}
)


def test_a_settlement_is_stored_as_a_record() -> None:
    store("r1", outcome=Outcome.CLIENT_GONE, **IDENTITY, **USED)

    row = UsageRecord.objects.values().get()
    del row["id"]
    assert row == (
        {"request_id": "r1", "created_at": NOON, "user_id": 7, "username": "alice"}
        | {"key_id": None, "key_name": "laptop", "model": "reference-chat"}
        | {"endpoint": "chat/completions", "dialect": "v1", "is_streamed": True}
        | {"num_prompt_tokens": 11, "num_cached_tokens": 8}
        | {"num_output_tokens": 30, "num_reasoning_tokens": 20}
        | {"queue_ms": 0.5, "first_token_ms": 12.25, "total_ms": 340.0}
        | {"http_status": 200, "outcome": "client_gone", "is_exact": True, **IDENTITY, **USED}
    )


def test_the_first_settlement_of_a_request_is_kept(django_assert_num_queries: Any) -> None:
    store_settlements([settlement(num_output_tokens=1), settlement("r2")])
    store_settlements([settlement(num_output_tokens=2), settlement("r3")])
    assert UsageRecord.objects.count() == 3
    assert UsageRecord.objects.get(request_id="r1").num_output_tokens == 1
    with django_assert_num_queries(0):
        store_settlements([])

    bound = BoundLimit(9, "key:12", "tokens", "minute", 1000, 950.0, 80.0, 1.8)
    shadow = BoundLimit(10, "platform", "requests", "day", 5, 5.0, 1.0, None, is_shadow=True)
    refused = settlement("bound", outcome=Outcome.REJECTED, bound_limits=(bound, shadow))
    store_settlements([refused])
    store_settlements([refused])
    first, second = RefusedRequest.objects.order_by("limit_id")
    assert (first.request_id, first.key_name, first.scope) == ("bound", "laptop", "key:12")
    assert (first.level, first.needed, first.wait_s) == (950.0, 80.0, 1.8)
    assert (second.is_shadow, second.wait_s) == (True, None)


@table(
    "invalid, column, stored",
    [
        ({"model": "m" * 300}, "model", "m" * 255),
        ({"model": "a\0b"}, "model", "ab"),
        ({"key_name": "é" * 101}, "key_name", "é" * 100),
        ({"ip": "::1"}, "ip", "::1"),
        ({"ip": "testclient"}, "ip", None),
        ({"ip": ""}, "ip", None),
        ({"ip": None}, "ip", None),
        ({"error_code": "e" * 65}, "error_code", "e" * 64),
        ({"num_output_tokens": -1}, "num_output_tokens", 0),
        ({"num_prompt_tokens": 2**40}, "num_prompt_tokens", 2**31 - 1),
    ],
)
def test_invalid_values_are_adjusted(invalid: dict[str, Any], column: str, stored: object) -> None:
    UsageRecord.objects.all().delete()
    store("r1", **invalid)

    assert UsageRecord.objects.values_list(column, flat=True).get() == stored


def test_a_batch_is_stored_completely_or_not_at_all(new_key: MakeKey) -> None:
    key = new_key().key

    def fails_when_the_key_is_marked(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("UPDATE"):
            raise OperationalError("gone in the middle")
        return execute(sql, *args)

    with connection.execute_wrapper(fails_when_the_key_is_marked), pytest.raises(OperationalError):
        store("r1", key_id=key.pk)
    for stored in (UsageRecord, DayRollup, UsageSlice):
        assert not stored.objects.exists()


def test_a_key_has_the_time_of_its_last_use(new_key: MakeKey) -> None:
    used, unused = new_key("used").key, new_key("unused").key
    stamp = used.updated_at
    at = [NOON + timedelta(minutes=minute) for minute in (0, 5, -9)]
    store_settlements([settlement(f"{each}", key_id=used.pk, started_at=each) for each in at])
    used.refresh_from_db()
    unused.refresh_from_db()
    assert used.last_used_at == NOON + timedelta(minutes=5)
    assert used.updated_at == stamp
    assert unused.last_used_at is None


def test_settlements_of_dead_processes_are_weighted_when_they_are_stored() -> None:
    store("without weights")
    ModelWeight.objects.create(model="reference-chat", uncached=2, cached=0.5, output=3)
    store_settlements([settlement("weighed", weighted_tokens=1.0), settlement("dead")])
    weights = dict(UsageRecord.objects.values_list("request_id", "weighted_tokens"))
    assert weights == {"without weights": 41.0, "weighed": 1.0, "dead": 3 * 2 + 8 * 0.5 + 30 * 3}

    ModelWeight.objects.update(image=10)
    # 16 tokens of a picture, the first two of them cached.
    pictures = Media(num_files=1, num_bytes=5, num_pixels=9, spans=((6, 22),))
    store("pictures", media=pictures, num_prompt_tokens=30, num_image_tokens=16)
    row = UsageRecord.objects.get(request_id="pictures")
    assert row.weighted_tokens == 8 * 0.5 + 14 * 10 + 8 * 2 + 30 * 3
    assert row.num_image_tokens == 16


MEDIA = {"num_image_tokens": 6, "num_media": 2, "num_media_bytes": 5000, "num_media_pixels": 25_088}
NOW = (NOON, NOON + timedelta(hours=1))


def finest(table: type[rollups.Rollup]) -> list[rollups.Rollup]:
    rows = table._default_manager.filter(slice__dimensions=RollupDimensions.ALL)
    return list(rows.order_by("start_s"))


def test_a_request_is_counted_by_minute_hour_and_day() -> None:
    at = NOON + timedelta(hours=1, minutes=2, seconds=3)
    store("r1", started_at=at, num_audio_tokens=4, num_video_tokens=5, **MEDIA)

    noon_s = int(NOON.timestamp())
    starts = [finest(table)[0].start_s for table in rollups.LEVELS.values()]
    assert starts == [noon_s + 3720, noon_s + 3600, noon_s - 43_200]
    row = finest(MinuteRollup)[0]
    sums = [getattr(row, column) for column in rollups.SUMS]
    assert sums == [1, 0, 1, 0, 0, 0, 0, 11, 8, 6, 5, 4, 30, 20, 2, 5000, 25_088, 41.0, 0]
    counts = histogram.decode(bytes(row.histograms))
    assert counts == {
        histogram.bucket_index_of(Latency.QUEUE, 0.5): 1,
        histogram.bucket_index_of(Latency.FIRST_TOKEN, 12.25): 1,
        histogram.bucket_index_of(Latency.TOTAL, 340.0): 1,
    }


def test_neither_unknown_models_nor_histograms_fill_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"outcome": Outcome.REJECTED, "http_status": 404}
    store_settlements([settlement(f"r{n}", model=f"made-up-{n}", **unknown) for n in range(3)])
    assert [(row.num_requests, row.slice.model) for row in finest(DayRollup)] == [(3, "")]
    assert UsageRecord.objects.filter(model="made-up-1").exists()

    monkeypatch.setattr(rollups, "_LONG_ROW_BYTES", 40)
    for n in range(10):
        store(f"h{n}", started_at=NOW[1] + timedelta(days=1), total_ms=100.0 + n)
    row = finest(DayRollup)[-1]
    counts = histogram.decode(bytes(row.histograms))
    assert sum(counts.values()) == 30
    assert len(bytes(row.histograms)) <= 40 + 4 * 3


def test_slices_have_a_fixed_digest() -> None:
    store("r1")
    # Databases contain the digest. Another digest would separate old and new usage of a slice.
    stored = UsageSlice.objects.get(dimensions=RollupDimensions.ALL)
    assert stored.digest == "40e0c715d4052fce4d1d88820b46f5a2"


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
    assert upkeep.kept_since(UsageRecord) == datetime(2026, 2, 24, tzinfo=UTC)
    assert UsageRecord.objects.filter(request_id="r5").exists()
    # A longer retention does not restore deleted records.
    delete_old({"by_minute": 300}, NOON)
    assert upkeep.kept_since(MinuteRollup) == datetime(2026, 2, 22, tzinfo=UTC)


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
