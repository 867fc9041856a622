"""A spare engine process: it has imported what engines need, and waits for its configuration.

To start Python and to import OpenVINO takes a third of the time in which a small model wakes, and
is the same for all models. So while a model is asleep, the node has one such process, and the model
that wakes next gets it.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from vinery_serving.node.engine_environment import engine_environment
from vinery_serving.node.running_engine import StartedEngine, end_engine
from vinery_serving.processes.heartbeat import Page

log = logging.getLogger(__name__)

# A spare process is started when no model has been loading for so long: it would compete for cores.
_CALM_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SpareEngine:
    """A process without a model, and the page that it shares with this node."""

    engine: StartedEngine
    page: Page

    async def end(self) -> None:
        await end_engine(self.engine)
        self.page.close()


class SpareEngines:
    """Has at most one of them. Belongs to the event loop."""

    def __init__(self) -> None:
        self._spare: SpareEngine | None = None
        self._is_wanted = False
        self._following: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that is there; None: there is none, or it has ended."""
        spare = self._spare
        return None if spare is None or spare.engine.has_ended else spare.engine.pid

    def take(self) -> SpareEngine | None:
        """Return the process for an engine; None: there is none, or it has ended."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.engine.has_ended:
            spare.page.close()
            return None
        return spare

    def want(self, *, is_wanted: bool) -> None:
        """Have one soon, or none."""
        self._is_wanted = is_wanted
        has_one = self.pid is not None
        if is_wanted != has_one and (self._following is None or self._following.done()):
            self._following = asyncio.create_task(self._follow(), name="spare engine")

    async def fill(self) -> None:
        """Start one."""
        page = Page(0.0)
        try:
            engine = await StartedEngine.start_spare(engine_environment(), page.fd)
        except OSError as error:
            page.close()
            log.warning("no spare engine process: %s", error)
        else:
            self._spare = SpareEngine(engine, page)

    async def close(self) -> None:
        """End it, and have none any more."""
        self._is_wanted = False
        if self._following is not None:
            await asyncio.gather(self._following, return_exceptions=True)
        await self._drop()

    async def _follow(self) -> None:
        if not self._is_wanted:
            await self._drop()
            return
        await asyncio.sleep(_CALM_S)
        if self._is_wanted and self.pid is None:
            await self._drop()
            await self.fill()

    async def _drop(self) -> None:
        if (spare := self.take()) is not None:
            await spare.end()
