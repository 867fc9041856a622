"""What one web process holds: who may call, which engines there are, what is running.

Started by the first thing that the server asks of the application, inside its event loop,
so that it works the same on every ASGI server. Everything that touches the database runs
in threads of its own; requests read only what those have left in memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from django.conf import settings
from django.db import Error, close_old_connections

from accounts.base.errors import DATABASE_UNAVAILABLE
from accounts.captures.queue import CaptureQueue
from accounts.keys.table import KeyTable
from accounts.limits.service import (
    LimitService,
    LimitSettings,
    UnavailablePolicy,
    settle_dead_leases,
)
from accounts.usage.ledger import UsageLedger
from accounts.usage.recovery import recover_orphans, store_then
from serving.constraints.families.registry import select_family
from serving.core.heap import freeze_heap
from serving.flow.directory import LocalDirectory
from serving.runtime.host_health import DISK_INTERVAL_S, DatabaseHealth, DiskHealth
from serving.runtime.live import LiveRequests
from serving.runtime.snapshot import read_models
from serving.runtime.traffic import Traffic
from serving.transport.client import EngineDisconnected
from serving.transport.messages import EngineStats

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

# Changes of keys and models are seen within a second, with room for a slow query.
_REFRESH_INTERVAL_S: Final = 0.4
_TICK_INTERVAL_S: Final = 1.0
_CAPTURES_INTERVAL_S: Final = 1.0
_PING_TIMEOUT_S: Final = 2.0
# An idle engine makes a token every 10 s; one that has made none for longer is not ready.
_READY_TOKEN_AGE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """One loaded model, as `/readyz` and `/metrics` see it. `stats` None: no answer."""

    model: str
    stats: EngineStats | None

    @property
    def is_ready(self) -> bool:
        """Whether it really made a token a moment ago."""
        age_s = None if self.stats is None else self.stats.last_token_age_s
        return age_s is not None and age_s < _READY_TOKEN_AGE_S


class Runtime:
    """`await start()` before anything else; it may be called for every request."""

    def __init__(self) -> None:
        self.keys = KeyTable()
        self._store_dead = store_then(settle_dead_leases)
        self.ledger = UsageLedger(Path(settings.VINERY_USAGE_DIR), store_dead=self._store_dead)
        self.captures = CaptureQueue()
        self.directory = LocalDirectory(Path(settings.VINERY_RUN_DIR), select_family)
        self.live = LiveRequests(self.ledger)
        self.traffic = Traffic()
        self.limits = LimitService(
            LimitSettings(
                redis_url=settings.VINERY_REDIS_URL,
                unavailable_policy=UnavailablePolicy(settings.VINERY_LIMITS_WHEN_AWAY),
                num_processes=settings.VINERY_WEB_WORKERS,
                queue_s=settings.VINERY_LIMITS_QUEUE_S,
            )
        )
        self.is_auth_on = bool(settings.VINERY_AUTH_ENABLED)
        # Unix times in seconds: what was in the database then holds in this process. 0: nothing.
        self.accounts_read_at_s = 0.0  # keys, their owners and limits
        self.models_read_at_s = 0.0
        self.database = DatabaseHealth()
        self.disk = DiskHealth(_places(), settings.VINERY_MIN_FREE_DISK_BYTES)
        self._start: asyncio.Task[None] | None = None
        self._is_started = False
        self._tasks: list[asyncio.Task[None]] = []
        self._snapshots = ThreadPoolExecutor(1, thread_name_prefix="snapshots")
        self._keys_read_at_s = 0.0
        self._has_read_keys = asyncio.Event()  # since limits were read
        # Of its own, because it adds up what was used of quotas, and keys must not wait for that.
        self._counting = ThreadPoolExecutor(1, thread_name_prefix="limits")
        # Of its own, so that nothing else waits for long texts. It starts with the first capture.
        self._capturing = ThreadPoolExecutor(1, thread_name_prefix="captures")

    @property
    def is_started(self) -> bool:
        """Whether requests can be served: keys and models have been read once."""
        return self._is_started

    async def start(self) -> None:
        """Load keys and models, and begin to keep them fresh. Idempotent.

        Raises `django.db.Error` while the database is away; the next call tries anew.
        """
        if not self._is_started:
            await asyncio.shield(self.begin())

    def begin(self) -> asyncio.Task[None]:
        """The start, which is set going if it is not, and again if it has failed."""
        if self._start is None or _has_failed(self._start):
            self._start = asyncio.create_task(self._begin(), name="runtime-start")
        return self._start

    async def stop(self) -> None:
        """Write what is unwritten and let go of the engines."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.directory.close()
        await self.limits.close()
        await self._store_captures()
        self._capturing.shutdown(wait=False)
        self._counting.shutdown(wait=False)
        await asyncio.to_thread(self.ledger.stop)
        self._snapshots.shutdown(wait=False)

    async def health(self) -> list[EngineHealth]:
        """All models that should be loaded, asked at once."""
        engines = list(self.directory.engines)
        stats = await asyncio.gather(*(self._ping(engine.client.ping) for engine in engines))
        return [
            EngineHealth(engine.entry.name, each)
            for engine, each in zip(engines, stats, strict=True)
        ]

    async def _begin(self) -> None:
        await asyncio.to_thread(self.disk.check)
        # First, because quotas begin with what the books say.
        await self._in_database_thread(self._recover_books)
        await self._refresh_keys()
        await self._refresh_limits()
        await self._refresh_models()
        # From here on nothing fails that a second start would have to do again.
        self.ledger.start()
        freeze_heap()
        # Apart from each other: a model's tokenizer may take seconds to load, and so may a store
        # of limits to answer, and a revoked key must not work meanwhile.
        self._tasks = [
            asyncio.create_task(_repeat(self._refresh_keys, _REFRESH_INTERVAL_S), name="keys"),
            asyncio.create_task(_repeat(self._refresh_limits, 0.0), name="limits"),
            asyncio.create_task(_repeat(self._refresh_models, _REFRESH_INTERVAL_S), name="models"),
            asyncio.create_task(_repeat(self._tick, _TICK_INTERVAL_S), name="tick"),
            asyncio.create_task(
                _repeat(self._store_captures, _CAPTURES_INTERVAL_S), name="captures"
            ),
            asyncio.create_task(_repeat(self._check_disks, DISK_INTERVAL_S), name="disks"),
        ]
        self._is_started = True

    async def _refresh_keys(self) -> None:
        begun_at_s = time.time()
        try:
            await self._in_database_thread(self.keys.follow)
        finally:
            # Keys expire whether or not the database answers.
            if self.is_auth_on:
                self.live.end_of_keys(self.keys.is_valid)
        self._keys_read_at_s = begun_at_s
        self._has_read_keys.set()

    async def _refresh_limits(self) -> None:
        """Follow limits after each reading of the keys, and let those in that are new. The key
        that replaces another one has its limits from one transaction with itself: whoever has
        seen the key sees them."""
        await self._has_read_keys.wait()
        self._has_read_keys.clear()
        read_at_s, num_read = self._keys_read_at_s, self.keys.num_read
        update = await self._in_database_thread(self.limits.read_update, self._counting)
        await self.limits.follow(update)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._snapshots, self.keys.admit, num_read)
        self.accounts_read_at_s = read_at_s

    def _recover_books(self) -> None:
        """Of processes that died: what they had let in is used, too."""
        try:
            recover_orphans(Path(settings.VINERY_USAGE_DIR), self._store_dead)
        except Error as error:
            log.warning("the books of dead processes wait: %s", error)

    async def _refresh_models(self) -> None:
        begun_at_s = time.time()
        entries, failing = await self._in_database_thread(read_models)
        await self.directory.update(entries, failing)
        self.models_read_at_s = begun_at_s

    async def _tick(self) -> None:
        self.live.tick()
        await self.limits.tick()

    async def _store_captures(self) -> None:
        if self.captures:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._capturing, _then_close, self.captures.store)

    async def _check_disks(self) -> None:
        await asyncio.to_thread(self.disk.check)

    async def _in_database_thread(
        self, work: Callable[[], ResultT], thread: ThreadPoolExecutor | None = None
    ) -> ResultT:
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(thread or self._snapshots, _then_close, work)
        except DATABASE_UNAVAILABLE:
            self.database.failed()
            raise
        except Error:  # it answers, if only with a complaint
            self.database.answered()
            raise
        self.database.answered()
        return result

    async def _ping(self, ping: Callable[[float], Awaitable[EngineStats]]) -> EngineStats | None:
        try:
            return await ping(_PING_TIMEOUT_S)
        except (EngineDisconnected, TimeoutError):
            return None


async def _repeat(work: Callable[[], Awaitable[None]], interval_s: float) -> None:
    """For ever; a database that is away is a warning, and the last snapshot stays.

    Whatever else fails is told and tried again: were this to end, revoked keys would go on to
    work here, and nobody would be told.
    """
    while True:
        await asyncio.sleep(interval_s)
        try:
            await work()
        except Error as error:
            log.warning("snapshot not refreshed: %s", error)
        except Exception:
            log.exception("snapshot not refreshed")


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _places() -> dict[str, Path]:
    """Where data lives on this host."""
    database = settings.DATABASES["default"]
    places = {"usage": Path(settings.VINERY_USAGE_DIR)}
    if database["ENGINE"].endswith("sqlite3"):
        places["the database"] = Path(database["NAME"]).parent
    return places


def _then_close(work: Callable[[], ResultT]) -> ResultT:
    try:
        return work()
    finally:
        close_old_connections()


@cache
def runtime() -> Runtime:
    """The one of this process: Django's views have no other way to be given it."""
    return Runtime()
