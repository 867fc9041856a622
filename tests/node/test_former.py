"""An engine with former settings serves until the new one does, and then until it is unused."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from tests.conftest import until_in_loop as until
from vinery_serving.node import former, status
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.node.fit import Need
from vinery_serving.node.former import FormerEngines
from vinery_serving.node.scheduler import EngineScheduler
from vinery_serving.transport.sockets import EngineAddress

FIRST, SECOND = EngineAddress(7, "1" * 12), EngineAddress(7, "2" * 12)


class ScriptedEngine:
    """Serves until it drains or is ended. `idle_since` None: it has requests."""

    def __init__(self, idle_since: float | None = None) -> None:
        self.idle_since = idle_since
        self.num_looks = 0
        self.is_draining = False
        self.has_ended = False
        self._ended = asyncio.Event()
        self._was_ended = asyncio.Event()

    @property
    def idle_since_s(self) -> float | None:
        self.num_looks += 1
        return self.idle_since

    def drain(self) -> None:
        self.is_draining = True
        self._ended.set()

    async def watch(self) -> None:
        await self._ended.wait()
        raise EngineDied("It ended.")

    async def end(self) -> None:
        self.has_ended = True
        self._was_ended.set()

    async def until_ended(self) -> None:
        await asyncio.wait_for(self._was_ended.wait(), 30)


@pytest.fixture
async def formers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FormerEngines]:
    async def change(model_id: int, *, has_former: bool) -> None:
        assert (model_id, has_former) == (7, False)

    monkeypatch.setattr(status, "change", change)
    monkeypatch.setattr(former, "_LOOK_INTERVAL_S", 0.001)
    monkeypatch.setattr(former, "_UNUSED_S", 0.002)
    found = FormerEngines(EngineScheduler({}, min_awake_s=0))
    yield found
    await found.end()


def add(formers: FormerEngines, address: EngineAddress = FIRST) -> ScriptedEngine:
    engine = ScriptedEngine()
    scheduler = formers._scheduler
    memory = scheduler.add(address.model_id, address.replica, "chat", "CPU")
    memory.hold(Need(10, 0))
    memory.wake(engine)
    formers.add(address, cast(EngineProcess, engine), memory)
    return engine


async def test_it_ends_after_its_last_request(formers: FormerEngines) -> None:
    engine = add(formers)
    formers.retire(7, 0)
    await until(lambda: engine.num_looks >= 5)
    assert formers.serves(7, 0)

    engine.idle_since = 0.001
    await engine.until_ended()
    await formers.end()
    assert not formers.serves(7, 0)
    assert formers._scheduler._models == {}


async def test_it_takes_no_request_when_it_was_in_use_for_too_long(formers, monkeypatch):
    monkeypatch.setattr(former, "_PREPARED_WITHIN_S", 0.01)
    engine = add(formers)
    formers.retire(7, 0)
    await engine.until_ended()


async def test_engines_that_drain_or_are_not_loaded_end_and_others_are_taken_back(formers):
    engine = add(formers)
    engine.is_draining = True
    assert await formers.take(FIRST) is None
    assert engine.has_ended

    engine = add(formers)
    await formers.end_others({(7, 0)})
    assert not engine.has_ended
    await formers.end_others({(8, 0)})
    assert engine.has_ended

    engine, other = add(formers, FIRST), add(formers, SECOND)
    assert await formers.take(FIRST) is cast(EngineProcess, engine)
    await formers.end()
    assert other.has_ended
    assert not engine.has_ended
    assert await formers.take(FIRST) is None
