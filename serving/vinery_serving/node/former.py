"""Engines with the former settings of their models: each serves until the new engine serves.

Web processes use the new engine as soon as it serves. A request may have been prepared for the
former engine by then, so the former engine ends only when no request has come for some seconds. A
former engine that crashes is not started again, and makes room for the new one if both do not fit.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.node import status
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.node.scheduler import EngineScheduler, ModelMemory
from vinery_serving.transport.sockets import EngineAddress

log = logging.getLogger(__name__)

# After so long without a request a former engine counts as unused.
_UNUSED_S: Final = 3.0
# A model that answers without a pause takes no new request after this time. A request that takes
# longer to prepare, such as one with many pictures, has to be sent again.
_PREPARED_WITHIN_S: Final = 60.0
_LOOK_INTERVAL_S: Final = 0.25


@dataclass(eq=False, slots=True)
class _Former:
    engine: EngineProcess
    memory: ModelMemory
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_retiring: bool = False


class FormerEngines:
    def __init__(self, scheduler: EngineScheduler) -> None:
        self._scheduler = scheduler
        self._formers: dict[EngineAddress, _Former] = {}

    def add(self, address: EngineAddress, engine: EngineProcess, memory: ModelMemory) -> None:
        memory.is_former = True
        former = self._formers[address] = _Former(engine, memory)
        watching = self._watch(address, former)
        former.tasks.append(asyncio.create_task(watching, name=f"former {address.file_name}"))
        self._scheduler.note()

    def serves(self, model_id: int, replica: int) -> bool:
        return not all(each.engine.is_draining for each in self._engines(model_id, replica))

    def retire(self, model_id: int, replica: int) -> None:
        for each in self._engines(model_id, replica):
            if not each.is_retiring:
                each.is_retiring = True
                each.tasks.append(asyncio.create_task(_drain_when_unused(each.engine)))

    async def take(self, address: EngineAddress) -> EngineProcess | None:
        """Return the engine whose settings are in force again, if it takes requests. Otherwise the
        engine has ended on return: the next engine has the same address."""
        former = self._formers.get(address)
        if former is None:
            return None
        if former.engine.is_draining:
            await self._end([address])
            return None
        await _cancel(former.tasks)
        self._forget(address, former)
        return former.engine

    async def end_others(self, replicas: Collection[tuple[int, int]]) -> None:
        """End the engines of other models. `replicas`: the ids and replicas that should be
        loaded."""
        await self._end([each for each in self._formers if (each[0], each.replica) not in replicas])

    async def end(self) -> None:
        await self._end(list(self._formers))

    async def _end(self, addresses: Collection[EngineAddress]) -> None:
        ended = {each: self._formers[each] for each in addresses}
        await _cancel([task for former in ended.values() for task in former.tasks])
        await asyncio.gather(*(self._finish(*each) for each in ended.items()))

    async def _watch(self, address: EngineAddress, former: _Former) -> None:
        try:
            await former.engine.watch()
        except (EngineDied, OSError) as error:
            log.info("former engine ended", extra={"fields": {"reason": str(error)}})
        await self._finish(address, former)

    async def _finish(self, address: EngineAddress, former: _Former) -> None:
        await asyncio.shield(former.engine.end())
        self._forget(address, former)
        await status.change(address.model_id, has_former=False)

    def _forget(self, address: EngineAddress, former: _Former) -> None:
        if self._formers.get(address) is former:
            del self._formers[address]
        self._scheduler.remove(former.memory)

    def _engines(self, model_id: int, replica: int) -> list[_Former]:
        wanted = (model_id, replica)
        return [each for at, each in self._formers.items() if (at.model_id, at.replica) == wanted]


async def _drain_when_unused(engine: EngineProcess) -> None:
    began_at = time.monotonic()
    while time.monotonic() - began_at < _PREPARED_WITHIN_S:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        idle_since_s = engine.idle_since_s
        if idle_since_s is not None and time.monotonic() - max(idle_since_s, began_at) >= _UNUSED_S:
            break
    engine.drain()


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
