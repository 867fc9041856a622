"""The benchmark of the logits hook measures every use."""

import pytest

from benchmarks.hook import HookEffort, measure_hook, uses
from tests.benchmarks.test_bench_hook import OPTIONS, TINY_CHAT


@pytest.mark.live
def test_every_use_is_measured_at_every_number_of_streams() -> None:
    effort = HookEffort(streams=(1, 3), num_rounds=2, round_s=0)

    result = measure_hook("tiny-chat", TINY_CHAT, OPTIONS, effort)

    measured = [(point.num_streams, point.use) for point in result.points]
    assert measured == [(number, use) for number in effort.streams for use in uses(number)]
    assert all(point.without_ms > 0 and point.with_ms > 0 for point in result.points)
