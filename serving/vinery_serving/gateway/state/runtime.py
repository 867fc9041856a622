"""The state of one web process: keys, limits, models, running requests and the usage ledger.

The application starts the runtime in the server's event loop, the same way on every ASGI server.
Database queries run in threads and keep snapshots in memory; requests read only snapshots.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from django.conf import settings
from django.db import Error

from vinery_accounts.base.change_signal import commit_state, listening
from vinery_accounts.base.connections import giving_back
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.base.files import write_private
from vinery_accounts.captures.quarantine import QuarantineQueue
from vinery_accounts.captures.store import CaptureQueue
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.limits.recovery import settle_dead_leases
from vinery_accounts.limits.service import LimitService, LimitsUpdate, UnavailablePolicy
from vinery_accounts.models import QuarantinedRequest
from vinery_accounts.stored.conversations import LOCK_S, renew
from vinery_accounts.usage.ledger import UsageLedger
from vinery_accounts.usage.recovery import recover_orphans, store_then
from vinery_serving.core import field_limits
from vinery_serving.gateway.engines.directory import LocalDirectory
from vinery_serving.gateway.engines.suspects import Quarantine, Work
from vinery_serving.gateway.state import host_health, model_rows
from vinery_serving.gateway.state.drain import Drain, LiveRequests
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.gateway.workers.pool import WorkerPool, WorkLimits
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.media.fetching import FetchLimits, MediaFetcher
from vinery_serving.media.tables.denials import DenialQueue
from vinery_serving.media.tables.policies import MediaPolicies
from vinery_serving.models.engine_status import UNREADABLE
from vinery_serving.models.live_socket import LiveServer
from vinery_serving.processes.upkeep import freeze_heap, until_next
from vinery_serving.transport.relayed import Key

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

# How often to ask whether there was a commit, if none was signalled. So changes of keys and models
# take effect within a second. Signals may be many, so another reading waits for so long.
_ASK_INTERVAL_S: Final = 1.0
_REFRESH_INTERVAL_S: Final = 0.5
# How often to read all without a commit: a quarantine ends with time.
_REREAD_INTERVAL_S: Final = 60.0
_TICK_INTERVAL_S: Final = 1.0
# How long a starting process waits for the first answer of the database, before it serves with the
# sealed copies, and how long after a failure it asks again.
_FIRST_ANSWER_S: Final = 2.0
_ASK_AGAIN_S: Final = 1.0
# How long a start waits for models to load. Later models are not ready yet.
_SETTLE_S: Final = 10.0
# Worker processes share cores with engines: a call may last so many times the CPU time.
_WALL_TIMES: Final = 3

# Each starts with its first work. The loop's default executor is not used: one full executor would
# hold up all users. Keys must not wait for the sums of used quotas, nor for long texts.
_THREADS: Final = ("snapshots", "files", "limits", "captures", "keeper", "recall")
# How long a request waits for what it continues, and how often locks of conversations are renewed.
_RECALL_S: Final = 10.0
_LOCKS_INTERVAL_S: Final = LOCK_S / 3


class Runtime:
    """Call `start` first; it may be called for every request. Belongs to the event loop."""

    num_not_stored = 0  # answers that could not be stored
    do_background: Callable[[], Awaitable[None]] | None = None  # once a second

    def __init__(self) -> None:
        self.keys = KeyTable()
        self._store_dead = store_then(settle_dead_leases)
        self.ledger = UsageLedger(Path(settings.VINERY_USAGE_DIR), store_dead=self._store_dead)
        self.captures = CaptureQueue()
        self.stored_bytes: dict[int | None, int] = {}  # that a project had stored last
        self.conversation_locks: set[str] = set()  # their holders, among the requests here
        self.quarantine = QuarantineQueue(settings.VINERY_QUARANTINE_S)
        self._following_quarantine = asyncio.Lock()
        # These read requests that are large or may take long, and the files of models.
        self.workers = WorkerPool("vinery_serving.gateway.reading.worker_jobs", _work_limits())
        self._model_readers = model_rows.ModelReaders(self.workers)
        home = Path(settings.VINERY_RUN_DIR), settings.VINERY_SOCKET_SECRET
        self.directory = LocalDirectory(
            *home,
            self._model_readers.read,
            Quarantine(self._put_in_quarantine if settings.VINERY_QUARANTINE_S else None),
            wait_s=settings.VINERY_WAKE_WAIT_S,
            on_change=self._follow_loaded,
            context=_context(),
        )
        self.media_policies, self.media_denials = MediaPolicies(), DenialQueue()
        self.media = MediaFetcher(limits=FetchLimits(**settings.VINERY_FETCH_LIMITS))
        self.live = LiveRequests()
        self._live_server = LiveServer(*home, self.live.rows, self.live.stop)
        self.drain = Drain()
        self.traffic = Traffic()
        self.limits = _limits()
        self.is_auth_on = bool(settings.VINERY_AUTH_ENABLED)
        # Unix times in seconds of the snapshots in memory: of keys and limits, and of models.
        self.accounts_read_at_s = self.models_read_at_s = 0.0  # not read yet
        self.engine_reports: dict[str, model_rows.EngineReport] = {}  # by model
        self.database = host_health.DatabaseHealth()
        self.disk = host_health.DiskHealth(_data_folders(), settings.VINERY_MIN_FREE_DISK_BYTES)
        self._copies = model_rows.Copies()
        self._models: model_rows.Models = {}, frozenset(), {}, frozenset()
        self._unreadable: dict[str, str] | None = None  # the reasons that were stored last
        self._start: asyncio.Task[None] | None = None
        # Requests can be served: keys and models have been read once, or are those of the copies.
        self.is_started = False
        # The process has started, or knows that the database does not answer.
        self._is_decided = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in _THREADS}
        self._keys_read_at_s = self._reread_at_s = 0.0
        self._commit_state: object = None  # when the keys were read
        self._num_changes = 0  # readings of keys after commits, which limits and models follow
        self._are_limits_due, self._are_models_due = asyncio.Event(), asyncio.Event()
        self._is_quarantine_due = asyncio.Event()

    @property
    def required_keys(self) -> KeyTable | None:
        """The keys that requests need; None: authentication is off."""
        return self.keys if self.is_auth_on else None

    async def start(self) -> bool:
        """Begin, and return whether requests can be served. Waits for the first answer of the
        database only: a process that cannot serve says so at once, and goes on asking."""
        self.begin()
        if not self.is_started:
            await self._is_decided.wait()
        return self.is_started

    def begin(self) -> None:
        if self._start is None:
            self._start = asyncio.create_task(self._begin(), name="runtime-start")

    async def stop(self) -> None:
        """Store pending captures and usage, and disconnect from the engines."""
        tasks = self._tasks if self._start is None else [*self._tasks, self._start]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._live_server.close()
        await self.directory.close()
        await self.workers.stop()
        await self.limits.close()
        await self._store_captures()
        await self._store_denials()
        await self._in_thread("files", self.ledger.stop)
        for thread in self._threads.values():
            thread.shutdown(wait=False)

    async def health(self) -> list[host_health.EngineHealth]:
        """Return the health of the engines of all models that should be loaded, within 2 s."""
        asked = [
            host_health.health_of(engine, replica, client)
            for engine in [engine.serving for engine in self.directory.engines]
            for replica, client in enumerate(engine.replicas.clients)
        ]
        return await asyncio.gather(*asked)

    async def _begin(self) -> None:
        check_disks = partial(self._in_thread, "files", self.disk.check)
        await check_disks()
        self._repeat("disks", check_disks, host_health.DISK_INTERVAL_S)
        self.workers.live_server()
        while not await self._is_done(self._read_database):
            if not self.is_started and await self._is_done(self._read_copies):
                await self._serve()
            self._is_decided.set()
            await asyncio.sleep(_ASK_AGAIN_S)
        if not self.is_started:
            await self._serve()
        await self._keep_copies()
        # Separate tasks: Redis may take seconds, and a revoked key must not work meanwhile.
        self._tasks.append(asyncio.create_task(self._follow_commits(), name="keys"))
        self._repeat("limits", self._refresh_limits, _REFRESH_INTERVAL_S)
        self._repeat("models", self._follow_models, _REFRESH_INTERVAL_S)

    async def _is_done(self, work: Callable[[], Awaitable[None]]) -> bool:
        if await _attempt(work, "starting: keys, limits and models cannot be read"):
            return True
        self._end_requests_of_inactive_keys()
        return False

    async def _read_database(self) -> None:
        try:
            async with asyncio.timeout(_FIRST_ANSWER_S):
                await self._in_database_thread(commit_state)
        except TimeoutError:
            self.database.failed()
            raise TimeoutError("the database does not answer") from None
        # First, because quotas begin with the usage that is stored.
        await self._in_database_thread(self._recover_usage)
        await self._refresh_keys()
        await self._refresh_limits()
        await self._follow_models()

    async def _read_copies(self) -> None:
        found = await self._in_thread("files", self._copies.read)
        if found is None:
            raise FileNotFoundError("there are no usable copies of keys, limits and models")
        tables, read_at_s = found
        self.keys.assume(tables.keys)
        self.limits.book.follow(tables.limits)
        self.media_policies.assume(tables.media)
        self.directory.quarantine.follow(tables.quarantine)
        await self._apply_models(tables.models)
        self.accounts_read_at_s = self.models_read_at_s = read_at_s
        age_s = time.time() - read_at_s
        log.warning("keys, limits and models are those of %.0f s ago, from sealed copies", age_s)

    async def _keep_copies(self) -> None:
        if not self.is_started:  # not all tables have been read
            return
        tables = model_rows.Tables(
            self.keys.entries,
            self.limits.book.snapshot,
            self.media_policies.levels,
            self._models,
            self.directory.quarantine.digests,
        )
        read_at_s = min(self.accounts_read_at_s, self.models_read_at_s)
        await self._in_thread("files", partial(self._copies.keep, tables, read_at_s))

    async def _serve(self) -> None:
        await self.directory.settle(_SETTLE_S)
        self.ledger.start()
        await self._live_server.start()
        freeze_heap()
        self._repeat("quarantine", self._store_quarantined, _TICK_INTERVAL_S)
        self._repeat("tick", self._tick, _TICK_INTERVAL_S)
        self._repeat("captures", self._store_captures, _TICK_INTERVAL_S)
        self._repeat("denials", self._store_denials, _TICK_INTERVAL_S)
        self._repeat("locks", self._renew_locks, _LOCKS_INTERVAL_S)
        if self.do_background is not None:
            self._repeat("background", self.do_background, _TICK_INTERVAL_S)
        self.is_started = True
        self._is_decided.set()

    def _repeat(self, name: str, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        self._tasks.append(asyncio.create_task(_repeat(work, interval_s), name=name))

    async def _follow_commits(self) -> None:
        signalled = asyncio.Event()
        with listening(signalled.set):
            while True:
                signalled.clear()
                next_at_s = time.monotonic() + _REFRESH_INTERVAL_S
                await _attempt(self._refresh_keys)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(until_next(_ASK_INTERVAL_S)):
                        await signalled.wait()
                        await asyncio.sleep(next_at_s - time.monotonic())

    async def _refresh_keys(self) -> None:
        """Read the keys if there was a commit, and let limits and models be read after them."""
        begun_at_s = time.time()
        try:
            has_changed, are_limits_due = await self._in_database_thread(self._follow_keys)
        finally:
            self._end_requests_of_inactive_keys()
        self._keys_read_at_s = begun_at_s
        self._num_changes += has_changed
        if has_changed:
            self._are_models_due.set()
        if has_changed or are_limits_due:
            self._are_limits_due.set()
        if not self._are_models_due.is_set():
            self.models_read_at_s = begun_at_s
        if not self._are_limits_due.is_set():
            self.accounts_read_at_s = begun_at_s
        if has_changed:  # at once: a key may have been revoked
            await self._keep_copies()

    def _end_requests_of_inactive_keys(self) -> None:
        """Keys expire whether or not the database answers."""
        if self.is_auth_on:
            self.live.end_of_inactive_keys(self.keys.is_valid)

    def _follow_keys(self) -> tuple[bool, bool]:
        """Whether keys were read, and whether limits are due even if not. In a thread."""
        state = commit_state()  # first: a commit from now on changes the next one
        now_s = time.monotonic()
        has_changed = state != self._commit_state or now_s > self._reread_at_s
        if has_changed:
            self.keys.follow()
            self.media_policies.refresh()
            self._commit_state, self._reread_at_s = state, now_s + _REREAD_INTERVAL_S
        return has_changed, self.limits.is_update_due

    async def _refresh_limits(self) -> None:
        """Refresh the limits after the keys were read, and then admit new keys. A rotated key and
        its limits are written in one transaction, so a reader of the key sees the limits."""
        await self._are_limits_due.wait()
        num_changes, num_read = self._num_changes, self.keys.num_read
        read_at_s = self._keys_read_at_s
        await self.limits.follow(await self._in_database_thread(self._read_limits, "limits"))
        if self.keys.has_pending:
            await self._in_thread("snapshots", partial(self.keys.admit, num_read))
        self.accounts_read_at_s = read_at_s
        if num_changes == self._num_changes:
            self._are_limits_due.clear()
        await self._keep_copies()

    def _read_limits(self) -> LimitsUpdate:
        # Requests that were not counted, because Redis was away, are in the baselines.
        if self.limits.is_update_due:
            self.ledger.flush()
        return self.limits.read_update()

    def _recover_usage(self) -> None:
        try:
            recover_orphans(Path(settings.VINERY_USAGE_DIR), self._store_dead)
        except Error as error:
            log.warning("usage journals of dead processes are not stored yet: %s", error)

    async def _follow_models(self) -> None:
        await self._are_models_due.wait()
        num_changes = self._num_changes
        await self._refresh_models()
        if num_changes == self._num_changes:
            self._are_models_due.clear()

    async def _refresh_models(self) -> None:
        begun_at_s = time.time()
        await self._refresh_quarantine()
        models, self.engine_reports = await self._in_database_thread(model_rows.read_models)
        await self._apply_models(models)
        self.models_read_at_s = begun_at_s
        await self._keep_copies()

    async def _apply_models(self, models: model_rows.Models) -> None:
        self._models = models
        # Before a request can ask for a new model: a worker reads no other folders.
        entries = models[0]
        self.workers.allow(path for entry in entries.values() for path in entry.read_paths)
        await self.directory.update(*models)
        self._follow_loaded()

    def _follow_loaded(self) -> None:
        failures, entries = self.directory.failures, self.directory.entries.values()
        reasons = {each.settings_key: failures[each.id] for each in entries if each.id in failures}
        if reasons != self._unreadable:
            self._unreadable = reasons
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._threads["files"], _tell_unreadable, reasons)
        serving = (engine.serving for engine in self.directory.engines)
        loaded = tuple((each.entry, each.assets.facts) for each in serving)
        file_limits = DecodeLimits(**settings.VINERY_DECODE_LIMITS)
        self.workers.load((loaded, field_limits.configured(), file_limits))

    def _put_in_quarantine(self, digest: str, model: str, work: Work) -> None:
        organization_id, key_id = work.lane
        self.quarantine.put(
            QuarantinedRequest(
                digest=digest,
                model=model,
                request_id=work.request_id,
                organization_id=organization_id or None,
                key_id=key_id or None,
                created_at=datetime.now(UTC),
            )
        )
        self._is_quarantine_due.set()

    async def _store_quarantined(self) -> None:
        """Store new quarantines at once: this process may be killed."""
        await self._is_quarantine_due.wait()
        await self._refresh_quarantine()
        if not self.quarantine.waiting:
            self._is_quarantine_due.clear()

    async def _refresh_quarantine(self) -> None:
        # One refresh at a time: `in_force` would lack what another stores meanwhile.
        async with self._following_quarantine:
            in_force = await self._in_database_thread(self.quarantine.sync)
            self.directory.quarantine.follow(in_force | self.quarantine.waiting)

    async def _tick(self) -> None:
        if self.live:
            self.ledger.checkpoint(self.live.progress())
        await self.limits.tick()

    async def _store_captures(self) -> None:
        if self.captures:
            await self._in_thread("captures", giving_back(self.captures.store))

    async def _store_denials(self) -> None:
        if self.media_denials:
            await self._in_database_thread(self.media_denials.store)

    async def _renew_locks(self) -> None:
        if holders := list(self.conversation_locks):
            await self.recall(partial(renew, holders))

    async def recall(self, work: Callable[[], ResultT], thread: str = "recall") -> ResultT:
        """Work on what is stored for clients. Raises `django.db.Error` and `TimeoutError`, too."""
        async with asyncio.timeout(_RECALL_S):
            return await self._in_database_thread(work, thread)

    def recall_later(self, work: Callable[[], object]) -> None:
        self._threads["recall"].submit(giving_back(work))

    async def _in_thread(self, thread: str, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], work)

    async def _in_database_thread(
        self, work: Callable[[], ResultT], thread: str = "snapshots"
    ) -> ResultT:
        try:
            result = await self._in_thread(thread, giving_back(work))
        except DATABASE_UNAVAILABLE:
            self.database.failed()
            raise
        except Error:  # the database answered, with an error
            self.database.answered()
            raise
        self.database.answered()
        return result


async def _repeat(work: Callable[[], Awaitable[None]], interval_s: float) -> None:
    """Repeat `work` forever. After an error the last snapshot stays in use. Unexpected errors are
    logged and do not end the loop: without it, revoked keys would continue to work."""
    while True:
        await asyncio.sleep(until_next(interval_s))
        await _attempt(work)


async def _attempt(
    work: Callable[[], Awaitable[None]], failure: str = "snapshot not refreshed"
) -> bool:
    try:
        await work()
    except (Error, TimeoutError, FileNotFoundError) as error:
        log.warning("%s: %s", failure, str(error).partition("\n")[0])
    except Exception:
        log.exception(failure)
    else:
        return True
    return False


def _tell_unreadable(reasons: Mapping[str, str]) -> None:
    try:
        write_private(Path(settings.VINERY_RUN_DIR, UNREADABLE), msgspec.json.encode(reasons))
    except OSError as error:
        log.warning("reasons of unusable models not stored: %s", error)


def _data_folders() -> dict[str, Path]:
    database = settings.DATABASES["default"]
    folders = {"usage": Path(settings.VINERY_USAGE_DIR)}
    if database["ENGINE"].endswith("sqlite3"):
        folders["the database"] = Path(database["NAME"]).parent
    return folders


def _context() -> Key | None:
    """What other hosts ask this one for; None: this is the only host."""
    if not settings.VINERY_HOST_KEY:
        return None
    from vinery_serving.cluster.authority import Certificates, Role

    authorities, own = settings.VINERY_AUTHORITY_SECRETS, settings.VINERY_HOST_KEY
    return Certificates(authorities, own, Role.WEB).context


def _limits() -> LimitService:
    return LimitService(
        redis_url=settings.VINERY_REDIS_URL,
        unavailable_policy=UnavailablePolicy(settings.VINERY_LIMITS_WHEN_AWAY),
        num_processes=settings.VINERY_WEB_WORKERS,
    )


def _work_limits() -> WorkLimits:
    return WorkLimits(
        num_processes=settings.VINERY_WORK_PROCESSES,
        cpu_s=settings.VINERY_WORK_TIME_S,
        wall_s=_WALL_TIMES * settings.VINERY_WORK_TIME_S,
        memory_bytes=settings.VINERY_WORK_MEMORY_BYTES,
        max_waiting=settings.VINERY_WORK_QUEUE,
        wait_s=settings.VINERY_WORK_WAIT_S,
        hung_after_s=settings.VINERY_HUNG_AFTER_S,
    )


@cache
def runtime() -> Runtime:
    """Return the runtime of this process. Django's views have no other access to it."""
    return Runtime()
