"""Engines of one model load and sleep together, as far as there is memory."""

import time

import pytest

from tests.node.test_former import ScriptedEngine
from vinery_serving.node.engine_process import SpareEngines
from vinery_serving.node.fit import Measured, Need
from vinery_serving.node.planner import Phase
from vinery_serving.node.scheduler import EngineScheduler, ModelMemory
from vinery_serving.transport.waiting import Wait

NEED = Need(0, 0, Measured(10, 10))


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> EngineScheduler:
    monkeypatch.setattr(SpareEngines, "want", lambda *_, **__: None)
    return EngineScheduler({"CPU": 25}, min_awake_s=0)


def add(scheduler: EngineScheduler, model_id: int, replica: int = 0) -> ModelMemory:
    memory = scheduler.add(model_id, replica, f"m{model_id}", "CPU")
    memory.ask(NEED, is_eager=False)
    return memory


def awake(scheduler: EngineScheduler, id_: int, replica: int, since_s: float | None) -> ModelMemory:
    memory = scheduler.add(id_, replica, f"m{id_}", "CPU")
    memory.hold(NEED)
    memory.wake(ScriptedEngine(since_s))
    return memory


def test_requests_wake_one_engine_and_others_follow(scheduler: EngineScheduler) -> None:
    first, second = add(scheduler, 1), add(scheduler, 1, replica=1)
    scheduler.waits = lambda: {1: Wait(3, 100.0)}
    scheduler.plan()
    assert (first.phase, second.phase) == (Phase.LOADING, Phase.ASLEEP)

    first.wake(ScriptedEngine(None))
    scheduler.waits = dict
    scheduler.plan()
    assert second.phase is Phase.LOADING


def test_a_request_of_another_host_wakes_the_first_replica_and_others_where_there_is_room(
    scheduler: EngineScheduler,
) -> None:
    other = awake(scheduler, 2, 0, 1.0)
    first, second, third = (add(scheduler, 1, replica=each) for each in range(3))
    for each in (second, third):
        each.note_wait(is_waited=True)
    scheduler.plan()
    assert [each.phase for each in (second, third)] == [Phase.LOADING, Phase.ASLEEP]
    scheduler.plan()
    assert other.phase is Phase.AWAKE, "no model makes room for a further replica"

    first.note_wait(is_waited=True)
    scheduler.plan()
    assert other.phase is Phase.LEAVING
    other.give_back()
    scheduler.plan()
    assert first.phase is Phase.LOADING

    for each in (first, second):
        each.wake(ScriptedEngine(0.0))
        each.awake_since_s = 0.0
    first.change(is_pinned=False, idle_limit_s=1.0)
    scheduler.plan()
    assert first.phase is Phase.AWAKE, "the other host has not connected yet"
    first.note_wait(is_waited=False)
    scheduler.plan()
    assert first.phase is Phase.LEAVING


def test_no_other_model_makes_room_for_a_second_engine(scheduler: EngineScheduler) -> None:
    awake(scheduler, 1, 0, None)
    second = add(scheduler, 1, replica=1)
    other = awake(scheduler, 2, 0, 1.0)
    scheduler.plan()
    assert second.phase is Phase.ASLEEP
    assert other.phase is Phase.AWAKE


def idle(scheduler: EngineScheduler, replica: int, *, for_s: float | None) -> ModelMemory:
    """An engine that woke long ago and may be idle for 50 s; None: it has requests."""
    now_s = time.monotonic()
    memory = awake(scheduler, 1, replica, None if for_s is None else now_s - for_s)
    memory.change(is_pinned=False, idle_limit_s=50)
    memory.awake_since_s = now_s - 200
    return memory


def test_engines_of_a_model_are_idle_together(scheduler: EngineScheduler) -> None:
    first, second = idle(scheduler, 0, for_s=100), idle(scheduler, 1, for_s=None)
    scheduler.plan()
    assert (first.phase, second.phase) == (Phase.AWAKE, Phase.AWAKE)
    second.engine = ScriptedEngine(time.monotonic() - 60)
    scheduler.plan()
    assert (first.phase, second.phase) == (Phase.LEAVING, Phase.LEAVING)


def test_no_engine_sleeps_while_another_of_its_model_loads(scheduler: EngineScheduler) -> None:
    first = idle(scheduler, 0, for_s=100)
    second = scheduler.add(1, 1, "m1", "CPU")
    second.hold(NEED)
    scheduler.plan()
    assert first.phase is Phase.AWAKE
