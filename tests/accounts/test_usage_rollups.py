"""Roll-ups are the sums of the usage records, in any order and with repeats."""

from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from usage_builders import NOON, settlement, store

from vinery_accounts.models import DayRollup, HourRollup, MinuteRollup, UsageRecord, UsageSlice
from vinery_accounts.usage import histogram, rollups
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.histogram import Latency
from vinery_accounts.usage.rollups import RollupDimensions
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.verify import verify
from vinery_serving.core.events import QUOTA

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

MEDIA = {"num_image_tokens": 6, "num_media": 2, "num_media_bytes": 5000, "num_media_pixels": 25_088}
NOW = (NOON, NOON + timedelta(hours=1))
THEN = (NOON - timedelta(days=40), NOON - timedelta(days=39))


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
    assert sums == [1, 0, 1, 0, 0, 0, 0, 11, 8, 6, 5, 4, 30, 20, 2, 5000, 25_088, 41.0]
    counts = histogram.decode(bytes(row.histograms))
    assert counts == {
        histogram.bucket_index_of(Latency.QUEUE, 0.5): 1,
        histogram.bucket_index_of(Latency.FIRST_TOKEN, 12.25): 1,
        histogram.bucket_index_of(Latency.TOTAL, 340.0): 1,
    }


def test_requests_of_one_slice_share_a_roll_up() -> None:
    at = [NOON + timedelta(seconds=at_s) for at_s in (0, 59, 30, 60)]
    requests = [settlement(f"r{n}", started_at=each) for n, each in enumerate(at, 1)]
    store_settlements(requests[:2])
    store_settlements(requests[2:])

    assert [row.num_requests for row in finest(MinuteRollup)] == [3, 1]
    assert [row.num_requests for row in finest(HourRollup)] == [4]
    assert [row.num_output_tokens for row in finest(DayRollup)] == [120]


def test_columns_of_other_dimensions_are_empty_in_a_slice() -> None:
    store("r1", key_id=3, project_id=5)

    key = UsageSlice.objects.get(dimensions=RollupDimensions.KEY)
    assert (key.key_id, key.key_name, key.project_id) == (3, "laptop", 5)
    assert (key.model, key.endpoint, key.outcome, key.status_class) == ("", "", "", None)
    model = UsageSlice.objects.get(dimensions=RollupDimensions.MODEL)
    assert (model.key_id, model.key_name, model.user_id, model.username) == (None, "", None, "")


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


ENDED: tuple[dict[str, Any], ...] = (
    {"outcome": Outcome.REJECTED, "http_status": 429},
    {"outcome": Outcome.REJECTED, "http_status": 404, "model": "made-up"},
    {"outcome": Outcome.FAILED, "http_status": 500},
    {"outcome": Outcome.INTERRUPTED, "http_status": None, "total_ms": None},
    {"outcome": Outcome.CLIENT_GONE, "http_status": 499},
    {"finish_reason": QUOTA},
    {},
)


def test_an_upgrade_counts_causes_and_only_the_latency_of_whole_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as former:
        former.setattr(rollups, "causes_of", lambda *_: (False,) * 4)
        former.setattr(rollups, "Latency", SimpleNamespace(TOTAL=None))
        for at, name in ((NOON, "r"), (THEN[0], "old")):
            for number, changes in enumerate(ENDED):
                store(f"{name}{number}", started_at=at, **changes)
    for period in (THEN, NOW):
        assert any(each.differences for each in verify(*period))

    migration = import_module("vinery_accounts.migrations.0002_since_0_1")
    migration.count_causes(apps, None)

    assert not any(each.differences for each in [*verify(*THEN), *verify(*NOW)])
    (of_day,) = DayRollup.objects.filter(
        slice__dimensions="project", start_s__gt=THEN[1].timestamp()
    )
    assert [getattr(of_day, each) for each in rollups.SUMS[:7]] == [7, 4, 7, 1, 1, 2, 1]
    counts = histogram.decode(bytes(of_day.histograms))
    assert counts[histogram.bucket_index_of(Latency.TOTAL, 340.0)] == 2


def test_slices_have_a_fixed_digest() -> None:
    store("r1")
    # Databases contain the digest. Another one would separate old and new usage of a slice.
    stored = UsageSlice.objects.get(dimensions=RollupDimensions.ALL)
    assert stored.digest == "40e0c715d4052fce4d1d88820b46f5a2"
