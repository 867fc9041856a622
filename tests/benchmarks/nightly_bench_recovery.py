"""Slots become free and engines come back. The benchmark measures how soon."""

import pytest

from benchmarks.platform_under_test import own_platform
from benchmarks.recovery import measure_recovery

pytestmark = pytest.mark.system


def test_every_way_to_leave_frees_the_slot_and_a_killed_engine_is_replaced() -> None:
    with own_platform() as platform:
        result = measure_recovery(platform, streams=(1, 3), num_trials=1)

    assert {(each.num_streams, each.way) for each in result.departures} == {
        (number, way)
        for number in (1, 3)
        for way in ("closed", "closed its sending half", "killed")
    }
    (restart,) = result.restarts
    assert restart.loading_s > 0
