"""The counters of requests, and their labels, which clients cannot add."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.fakes.clock import FakeClock
from vinery_accounts.usage.entries import Admission, BoundLimit, Outcome, Settlement
from vinery_serving.gateway.state.host_health import DatabaseHealth, DiskHealth
from vinery_serving.gateway.state.traffic import UNKNOWN, Histogram, Traffic

SERVED = {"small", "large"}


def settlement(model: str = "small", status: int = 200, **changes: Any) -> Settlement:
    admission = Admission(
        request_id="r",
        user_id=None,
        username="",
        key_id=None,
        key_name="",
        model=model,
        endpoint=changes.pop("endpoint", "completions"),
        dialect="v1",
        is_streamed=False,
        started_at=datetime.now(UTC),
    )
    return Settlement(admission=admission, outcome=Outcome.OK, http_status=status, **changes)


def bound(scope: str, *, is_shadow: bool = False) -> BoundLimit:
    return BoundLimit(1, scope, "tokens", "day", 10, 10, 1, None, is_shadow)


def counted(*settlements: Settlement) -> Traffic:
    traffic = Traffic()
    for each in settlements:
        traffic.settled(each, SERVED)
    return traffic


def test_requests_are_counted_by_known_models_and_durations_by_their_bounds() -> None:
    traffic = counted(
        settlement(),
        settlement(),
        settlement(status=499),
        settlement(endpoint="responses"),
        settlement("large"),
    )
    assert traffic.models["small"].requests == {
        ("completions", 200): 2,
        ("completions", 499): 1,
        ("responses", 200): 1,
    }
    assert traffic.models["large"].requests == {("completions", 200): 1}

    traffic = counted(*(settlement(name, 404) for name in ("", "gpt-9", "gpt-10", UNKNOWN)))
    assert list(traffic.models) == [UNKNOWN]
    assert traffic.models[UNKNOWN].requests == {("completions", 404): 4}

    traffic = counted(settlement())
    traffic.settled(settlement(), served=())
    assert traffic.models["small"].requests == {("completions", 200): 2}

    histogram = Histogram((0.1, 1.0))
    for duration_ms in (0.0, 100.0, 100.1, 1000.0, 5000.0):
        histogram.count(duration_ms)
    assert histogram.nums == [2, 2, 1]
    assert histogram.sum_ms == pytest.approx(6200.1)


def test_durations_are_counted_separately_and_answers_by_their_reason() -> None:
    begun = {"first_token_ms": 5.0, "total_ms": 90.0, "inter_token_ms": 4.0}
    answers = (
        settlement(**begun, finish_reason=reason, num_output_tokens=11)
        for reason in ("stop", "tool_calls", "length", "quota_exceeded")
    )
    model = counted(*answers, settlement(status=429, queue_ms=7.0)).models["small"]

    assert model.finished == {"stop": 2, "length": 2}
    for name, num, sum_ms in (
        ("first_token", 4, 20),
        ("inter_token", 4, 16),
        ("token_gap", 40, 160),
        ("queue", 1, 7),
        ("total", 4, 360),
        ("answer", 4, 360),
    ):
        histogram = model.durations[name]
        assert (sum(histogram.nums), histogram.sum_ms) == (num, sum_ms)

    begun_alone = settlement(first_token_ms=5.0, total_ms=90.0)
    model = counted(
        structs.replace(begun_alone, outcome=Outcome.CLIENT_GONE),
        structs.replace(begun_alone, outcome=Outcome.FAILED),
    ).models["small"]

    assert model.finished == {"abort": 1, "error": 1}
    assert sum(model.durations["answer"].nums) == 0


def test_effects_of_limits_are_counted_without_their_owners() -> None:
    traffic = counted(
        settlement(status=429, bound_limits=(bound("key:1"),)),
        settlement(status=429, bound_limits=(bound("key:2"), bound("platform", is_shadow=True))),
        settlement(bound_limits=(bound("model:small"),)),
    )
    assert traffic.refusals == {
        ("tokens", "key", "refused"): 2,
        ("tokens", "platform", "shadow"): 1,
        ("tokens", "model", "cut_short"): 1,
    }


def test_media_are_counted() -> None:
    media = {
        "num_media": 2,
        "num_media_bytes": 500,
        "num_media_pixels": 600,
        "num_image_tokens": 32,
        "num_video_tokens": 4,
        "fetch_ms": 20.0,
        "decode_ms": 30.0,
        "encode_ms": 40.0,
    }
    small = counted(settlement(**media), settlement(**media), settlement()).models["small"]

    assert list(small.media.values()) == [4, 1000, 1200, 64, 8]
    times = [small.durations[name] for name in ("fetch", "decode", "encode")]
    assert [(sum(each.nums), each.sum_ms) for each in times] == [(2, 40), (2, 60), (2, 80)]


# -- Host health is read from memory, and a check that does not return is reported


def test_a_database_that_failed_or_is_silent_for_seconds_is_unavailable_until_it_answers() -> None:
    clock = FakeClock()
    database = DatabaseHealth(clock)
    assert not database.is_unavailable
    assert database.report == "has not answered in 0 s"
    database.failed()
    assert database.is_unavailable
    assert database.report == "unavailable, has not answered in 0 s"
    database.answered()
    assert not database.is_unavailable

    clock.now_s += 9.9
    assert not database.is_unavailable
    assert database.report == "answered 10 s ago"
    clock.now_s += 0.2
    assert database.is_unavailable
    assert database.report == "unavailable, answered 10 s ago"
    assert round(database.silent_s, 1) == 10.1
    database.answered()
    assert not database.is_unavailable


def test_low_disks_are_reported_by_what_they_store(tmp_path: Path) -> None:
    disk = DiskHealth({"usage": tmp_path}, min_free_bytes=0)
    disk.check()
    assert (disk.is_healthy, disk.report) == (True, "enough, seen 0 s ago")
    assert disk.free_bytes["usage"] > 0

    folders = {"usage": tmp_path, "the database": Path("/proc")}
    disk = DiskHealth(folders, min_free_bytes=1)

    disk.check()

    # The kernel's file system has no free space.
    assert disk.free_bytes["the database"] == 0
    assert disk.report == "low: 0 MiB for the database, seen 0 s ago"
    assert not disk.is_healthy


def test_a_missing_folder_or_a_silent_disk_is_reported_with_the_time(tmp_path: Path) -> None:
    folder, clock = tmp_path / "usage", FakeClock()
    disk = DiskHealth({"usage": folder}, min_free_bytes=0, clock=clock)
    assert disk.report == "not measured for 0 s"
    disk.check()
    assert (disk.is_healthy, disk.report) == (False, "cannot be read, seen 0 s ago")

    folder.mkdir()
    disk.check()
    clock.now_s += 14.0
    assert (disk.is_healthy, disk.report) == (True, "enough, seen 14 s ago")
    clock.now_s += 2.0
    # It was good when it was seen last.
    assert (disk.is_healthy, disk.report) == (False, "enough, seen 16 s ago")
