"""Whole tables of the benchmarks: all uses of the hook, calls in any parts, and recovery."""

import pytest

from benchmarks.bare import BareEngine
from benchmarks.calls.damage import KINDS
from benchmarks.calls.forms import FORMS
from benchmarks.crowds import CrowdBench
from benchmarks.hook import HookEffort, measure_hook, uses
from benchmarks.load import Endpoint
from benchmarks.platform_under_test import own_platform, wait_until_it_answers
from benchmarks.prompts import PromptSource, counting
from benchmarks.recovery import measure_recovery
from tests.benchmarks.test_bench_calls import check_parts
from tests.benchmarks.test_bench_hook import OPTIONS, TINY_CHAT
from vinery_serving.engine.options import EngineOptions


@pytest.mark.live
def test_every_use_is_measured_at_every_number_of_streams() -> None:
    effort = HookEffort(streams=(1, 3), num_rounds=2, round_s=0)

    result = measure_hook("tiny-chat", TINY_CHAT, OPTIONS, effort)

    measured = [(point.num_streams, point.use) for point in result.points]
    assert measured == [(number, use) for number in effort.streams for use in uses(number)]
    assert all(point.without_ms > 0 and point.with_ms > 0 for point in result.points)


@pytest.mark.parametrize("family", FORMS)
def test_a_call_is_read_the_same_in_any_parts(family: str) -> None:
    for kind in KINDS:
        check_parts(family, kind, number=3, distance=7)


@pytest.mark.system
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


@pytest.mark.system
def test_a_crowd_is_served_beside_the_bare_loop_and_a_neighbour_beside_it() -> None:
    with own_platform() as platform, BareEngine(TINY_CHAT, EngineOptions()) as bare:
        wait_until_it_answers(platform.endpoint, "tiny-chat")
        bench = CrowdBench(platform.endpoint, bare, PromptSource(TINY_CHAT, counting))
        crowds = bench.crowds([(1, 1), (70, 2)])
        secret = platform.run("key", "create", "--name", "neighbour").strip()
        beside = bench.neighbours(Endpoint(platform.endpoint.base_url, secret), 20, 3)

    assert [(each.num_requests, each.num_refused + each.num_failed) for each in crowds] == [
        (1, 0),
        (140, 0),
    ]
    assert [each.num_refused for each in beside] == [0, 0]
