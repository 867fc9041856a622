"""Each settlement is stored as one usage record."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from usage_builders import NOON, settlement, store

from tests.accounts.key_tables import MakeKey
from tests.tables import table
from vinery_accounts.models import (
    ApiKey,
    DayRollup,
    ModelWeight,
    RefusedRequest,
    UsageRecord,
    UsageSlice,
)
from vinery_accounts.usage.entries import BoundLimit, Media, Outcome
from vinery_accounts.usage.store import store_settlements

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


IDENTITY = (
    {"project_id": 3, "project_name": "search"}
    | {"organization_id": 2, "organization_name": "acme", "ip": "10.0.0.7"}
    | {"asked_model": "chat", "client_request_id": "mine", "num_request_bytes": 300}
    | {"mm_hashes": "00ff 11", "end_user": "ann"}
)
USED = (
    {"num_image_tokens": 5, "num_video_tokens": 6, "num_audio_tokens": 4, "weighted_tokens": 12.5}
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


def test_records_of_deleted_keys_are_stored(new_key: MakeKey) -> None:
    key = new_key().key
    key_id = key.pk
    key.owner.delete()
    assert not ApiKey.objects.exists()
    store("r1", key_id=key_id)
    assert UsageRecord.objects.get().key_id == key_id


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
