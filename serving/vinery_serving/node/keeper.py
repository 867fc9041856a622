"""Keeps the engine of one model alive: adoption or start, watch, and restart.

A model that cannot load is tried a few times, see `load_errors`, and then stays failed until its
files change or an administrator asks to try again. A change of the settings ends the keeper and
starts a new one; an engine that serves continues until the new engine has loaded, see `former`.

Before an engine starts, its keeper waits for memory, see `scheduler`: the model is asleep.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from vinery_serving.core.model_files import FolderState, folder_state, folders_of
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import EngineConfig, EngineLog, PoolingConfig
from vinery_serving.engine.options import EngineOptions, parse_options
from vinery_serving.models.devices import first_device
from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.models import check_processors
from vinery_serving.node import fit, status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.engine_process import END_TIMEOUT_S, EngineDied, EngineProcess
from vinery_serving.node.fit import EngineFacts, Measured, Need, read_facts
from vinery_serving.node.former import FormerEngines
from vinery_serving.node.load_errors import (
    FailureKind,
    LoadAttempts,
    LoadFailure,
    killed,
    load_failure,
)
from vinery_serving.node.scheduler import EngineScheduler, Verdict
from vinery_serving.node.status import Subject
from vinery_serving.processes.logs.file import engine_name, log_path
from vinery_serving.processes.upkeep import until_next
from vinery_serving.prompting.pooling_folder import PoolingFolder
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.sockets import EngineAddress, engine_socket, settings_key

log = logging.getLogger(__name__)

# How often the files of a failed model are compared. Changed files differ from the failed files and
# are the same twice in a row, so a copy that is being written is left alone.
_FILES_INTERVAL_S: Final = 2.0
# Streams wait for the next engine, and the quarantine limits their requests.
_RESTART_PAUSE_S: Final = 0.1
# How often the memory of an engine is measured.
_MEASURE_INTERVAL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The fields of a served model that its engine depends on: equal specs need no restart."""

    id: int
    name: str
    folder: str
    device: str
    options: str  # canonical JSON, so that equal options compare equal
    task: Task = Task.CHAT
    settings_digest: str = ""  # of the model
    replica: int = 0
    device_number: int = 0  # of those on which the replicas run in turn

    @property
    def address(self) -> EngineAddress:
        return EngineAddress(self.id, settings_key(self.settings_digest), self.replica)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The fields of a served model that need no new engine, and the state of the last engine."""

    retried_at: datetime | None = None  # when an administrator asked to try again
    # When an administrator asked to show it known pictures; None: nothing is left to do.
    test_asked_at: datetime | None = None
    is_pinned: bool = False
    idle_limit_s: float | None = None
    is_asleep: bool = False  # by the last report
    measured: Measured | None = None
    is_here: bool = True  # this host should run the engine, of several hosts
    waited_since: datetime | None = None  # when the oldest request came that waits, on any host


@dataclass(frozen=True, slots=True)
class _Crash:
    text: str


class Keeper:
    """Runs the engine of a model until `end` or `hand_over`, at first the one that was found."""

    def __init__(
        self,
        spec: ModelSpec,
        found: AdoptedEngine | EngineProcess | None,
        asked: LiveSettings,
        scheduler: EngineScheduler,
        formers: FormerEngines,
    ) -> None:
        """`formers` has the engine that serves until this one does, if there is one."""
        self._spec = spec
        self._retried_at = asked.retried_at
        self._asked = asyncio.Event()
        self._memory = scheduler.add(spec.id, spec.replica, spec.name, first_device(spec.device))
        self._measured = asked.measured
        self._is_eager = not asked.is_asleep
        self._measuring: asyncio.Task[None] | None = None
        self._num_restarts = 0
        self._attempts = LoadAttempts()
        self._ready: EngineProcess | None = None  # while it serves
        self._testing: asyncio.Task[None] | None = None
        self._known: tuple[FolderState, EngineFacts] | None = None
        self._scheduler = scheduler
        self._formers = formers
        self._left: EngineProcess | None = None  # to others, by `hand_over`
        self._found = found  # until it is adopted or ended
        if self._has_former:
            self._memory.want()
        self.follow(asked)
        self._task = asyncio.create_task(self._keep_alive(), name=f"engine {spec.name}")

    def follow(self, asked: LiveSettings) -> None:
        self._memory.change(is_pinned=asked.is_pinned, idle_limit_s=asked.idle_limit_s)
        if asked.retried_at != self._retried_at:
            self._retried_at = asked.retried_at
            self._retry()
        self._memory.note_wait(is_waited=asked.waited_since is not None)
        if asked.test_asked_at is not None:
            self.test_pictures(asked.test_asked_at)

    def _retry(self) -> None:
        """Try again now if the model waits for an attempt or has failed, and wake a sleeping
        model."""
        self._asked.set()
        if self._spec.replica == 0:  # one is enough, and the others follow if there is room
            self._memory.want()

    def test_pictures(self, asked_at: datetime) -> None:
        """Show the model known pictures, for which an administrator has asked, unless this is under
        way. While no engine serves it stays due."""
        is_testing = self._testing is not None and not self._testing.done()
        if self._ready is not None and not is_testing:
            testing = self._test_pictures(self._ready, asked_at)
            self._testing = asyncio.create_task(testing, name=f"pictures {self._spec.name}")

    async def _test_pictures(self, engine: EngineProcess, asked_at: datetime) -> None:
        failure = await engine.test_pictures()
        await status.report_pictures(self._subject, failure, asked_at)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._end_found()
        self._scheduler.remove(self._memory)

    async def hand_over(self) -> None:
        engine = self._ready
        if engine is None or engine.is_draining:
            await self.end()
            return
        self._left = engine
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._formers.add(self._spec.address, engine, self._memory)

    @property
    def _has_former(self) -> bool:
        return self._formers.serves(self._spec.id, self._spec.replica)

    async def _keep_alive(self) -> None:
        try:
            while True:
                await self._wait_for_memory()
                files = await self._read_files()
                end = await self._run_once(files)
                if end is None:
                    self._memory.give_back()
                    self._is_eager = False
                    continue
                fields = {"model": self._spec.name, "reason": end.text}
                if isinstance(end, _Crash):
                    self._memory.lose_engine()
                    log.error("engine died", extra={"fields": fields})
                    await self._report(EngineState.LOADING, error=end.text)
                    await asyncio.sleep(_RESTART_PAUSE_S)
                else:
                    self._memory.give_back()
                    self._is_eager = True
                    log.error("model does not load", extra={"fields": fields})
                    await self._wait_for_next_attempt(end, files)
                self._num_restarts += 1
        finally:
            if self._left is None:
                await asyncio.shield(self._report(EngineState.UNLOADED))

    async def _wait_for_memory(self) -> None:
        """Wait until an engine may start. An adopted engine has its memory already."""
        if self._memory.is_held:
            return
        is_eager, need = self._is_eager, await self._need()
        if self._found is not None:
            self._memory.hold(need)
            return
        self._memory.ask(need, is_eager=is_eager)
        verdict = await self._memory.verdict()
        while verdict is not Verdict.GRANTED:
            if verdict is Verdict.ASLEEP:
                num_bytes = self._memory.need.total_bytes
                await self._report(EngineState.ASLEEP, needed_bytes=num_bytes)
            else:
                await self._report(EngineState.FAILED, error=self._memory.unfit_text)
            verdict = await self._next_verdict(verdict)

    async def _next_verdict(self, last: Verdict) -> Verdict:
        while last is Verdict.UNFIT:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FILES_INTERVAL_S):
                    return await self._memory.verdict()
            if (need := await self._need()) != self._memory.need:
                self._memory.ask(need, is_eager=True)
        return await self._memory.verdict()

    async def _need(self) -> Need:
        facts = await self._facts(await self._read_files())
        return await asyncio.to_thread(_estimate_need, self._spec, facts, self._measured)

    async def _facts(self, files: FolderState) -> EngineFacts:
        if self._known is None or self._known[0] != files:
            folders = await asyncio.to_thread(_folders, self._spec)
            facts = await read_facts(folders, generates=self._spec.task.is_generation)
            self._known = files, facts
        return self._known[1]

    async def _run_once(self, files: FolderState) -> _Crash | LoadFailure | None:
        """Return None for an engine that has finished its requests, to sleep."""
        found = self._found
        try:
            config = _new_config(self._spec, await self._facts(files))
            engine = found if isinstance(found, EngineProcess) else self._new_engine(config)
        except (ValueError, OSError) as error:
            self._known = None
            await self._end_found()
            is_passing = isinstance(error, OSError)
            kind = FailureKind.PASSING if is_passing else FailureKind.FINAL
            return LoadFailure(kind, str(error))
        has_loaded = False
        self._found = None
        try:
            await self._start(engine, found)
            has_loaded, self._attempts = True, LoadAttempts()
            self._asked.clear()
            self._ready = engine
            self._memory.wake(engine)
            self._formers.retire(self._spec.id, self._spec.replica)
            await self._report(
                EngineState.READY,
                pid=engine.pid,
                max_context=config.max_context,
                picture_failure=engine.picture_failure,
            )
            measuring = self._keep_measuring(engine, is_new=found is None)
            self._measuring = asyncio.create_task(measuring)
            await engine.watch()
        except (EngineDied, OSError) as error:  # such as too many open files in this process
            if has_loaded:
                return None if engine.is_draining else _Crash(str(error))
            is_killed = isinstance(error, EngineDied) and error.is_killed
            return killed(str(error)) if is_killed else load_failure(str(error))
        finally:
            self._ready = None
            for task in (self._testing, self._measuring):
                if task is not None:
                    task.cancel()
            if engine is not self._left:
                await asyncio.shield(engine.end())

    async def _end_found(self) -> None:
        found, self._found = self._found, None
        if isinstance(found, EngineProcess):
            await found.end()
        elif found is not None:
            await found.end(END_TIMEOUT_S)

    def _new_engine(self, config: EngineConfig) -> EngineProcess:
        return EngineProcess(
            config, replaces_hung=settings.VINERY_HUNG_AFTER_S > 0, spares=self._scheduler.spares
        )

    async def _keep_measuring(self, engine: EngineProcess, *, is_new: bool) -> None:
        if is_new:
            self._measured = None
        while True:
            await self._measure(engine)
            await asyncio.sleep(until_next(_MEASURE_INTERVAL_S))

    async def _measure(self, engine: EngineProcess) -> None:
        last = self._measured
        loaded_bytes = None if last is None else last.loaded_bytes
        if engine.pid is not None:
            self._measured = await asyncio.to_thread(fit.measure, engine.pid, loaded_bytes) or last
        if self._measured is not None and self._measured != last:
            self._memory.correct(await self._need())
            if self._spec.replica == 0:  # it stands for all
                needed_bytes = self._memory.need.total_bytes
                measured = asdict(self._measured)
                await status.change(self._spec.id, needed_bytes=needed_bytes, **measured)

    async def _start(
        self, engine: EngineProcess, found: AdoptedEngine | EngineProcess | None
    ) -> None:
        """Adopt the engine that was found, or start one. Raises EngineDied."""
        if engine is found:
            return
        if isinstance(found, AdoptedEngine) and await engine.adopt(found):
            self._log_pid("engine adopted", engine)
            return
        if self._attempts.num_failed:
            await self._report(EngineState.RETRYING)
        else:
            await self._report(EngineState.LOADING, forgets_error=self._num_restarts == 0)
        await engine.start()
        self._log_pid("engine ready", engine)

    async def _wait_for_next_attempt(self, failure: LoadFailure, files: FolderState) -> None:
        pause_s = self._attempts.pause_after(failure.kind)
        if pause_s is None:
            await self._report(EngineState.FAILED, error=failure.text)
            await self._wait_for_change(files)
        else:
            next_at = timezone.now() + timedelta(seconds=pause_s)
            await self._report(EngineState.RETRYING, error=failure.text, next_attempt_at=next_at)
            if not await self._is_asked_within(pause_s):
                return
        self._asked.clear()
        self._attempts = LoadAttempts()
        # The next report is about other files, or another try: the old error would mislead.
        await self._report(EngineState.LOADING, forgets_error=True)

    async def _wait_for_change(self, failed: FolderState) -> None:
        last = failed
        while not await self._is_asked_within(_FILES_INTERVAL_S):
            now = await self._read_files()
            if now == last != failed:
                return
            last = now

    async def _is_asked_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._asked.wait()
        return self._asked.is_set()

    async def _read_files(self) -> FolderState:
        return await asyncio.to_thread(lambda: folder_state(_folders(self._spec)))

    def _log_pid(self, event: str, engine: EngineProcess) -> None:
        log.info(event, extra={"fields": {"model": self._spec.name, "pid": engine.pid}})

    @property
    def _subject(self) -> Subject:
        spec = self._spec
        return Subject(spec.id, spec.settings_digest, spec.replica, spec.device)

    async def _report(self, state: EngineState, **details: Any) -> None:
        # A replaced engine only finishes its requests.
        details["has_former"] = self._has_former and state is not EngineState.READY
        await status.report(self._subject, state, self._num_restarts, self._attempts, **details)


def _new_log(model: str) -> EngineLog:
    log_settings = settings.VINERY_LOG
    return EngineLog(
        path=log_path(Path(settings.VINERY_LOG_DIR), engine_name(model)),
        is_json=log_settings.is_json,
        level=log_settings.level,
        max_bytes=log_settings.bounds.max_bytes,
        num_files=log_settings.bounds.num_files,
    )


def _folders(spec: ModelSpec) -> Sequence[Path]:
    return folders_of(spec.folder, json.loads(spec.options))


def _estimate_need(spec: ModelSpec, facts: EngineFacts, measured: Measured | None) -> Need:
    """A measurement of a process has the memory of the CPU only."""
    try:
        options = parse_options(json.loads(spec.options), spec.task)
    except ValueError:  # no engine can start, and its failure has the reason
        options = EngineOptions()
    need = fit.estimate(_folders(spec), spec.device, options, facts)
    is_on_cpu = first_device(spec.device) == "CPU"
    return replace(need, measured=measured) if is_on_cpu else need


def _new_config(spec: ModelSpec, facts: EngineFacts) -> EngineConfig:
    """Raises ValueError, or OSError for what may pass, with a sentence for the administrator."""
    options = parse_options(json.loads(spec.options), spec.task)
    check_processors(options)
    if facts.error:
        raise OSError(facts.error) if facts.is_passing else ValueError(facts.error)
    socket_path = engine_socket(Path(settings.VINERY_RUN_DIR), spec.address)
    # Engines of one device share its compiled graphs, and remove the graphs of another device.
    cache_name = f"model-{spec.id}-{spec.device_number}".removesuffix("-0")
    if facts.pooling is None:
        max_context = options.context_of(facts.max_context)
    else:
        max_context = options.max_context or facts.pooling.max_tokens
    return EngineConfig(
        name=spec.name,
        folder=Path(spec.folder),
        device=spec.device,
        socket_path=socket_path,
        socket_key=socket_key(settings.VINERY_SOCKET_SECRET, socket_path),
        cache_dir=Path(settings.VINERY_CACHE_DIR) / cache_name,
        usage_dir=Path(settings.VINERY_USAGE_DIR),
        max_context=max_context or 0,
        options=options,
        task=spec.task,
        pooling=PoolingConfig()
        if facts.pooling is None
        else _pooling_config(spec, options, facts.pooling),
        log=_new_log(spec.name),
    )


def _pooling_config(
    spec: ModelSpec, options: EngineOptions, folder: PoolingFolder
) -> PoolingConfig:
    """Options go before the files of the folder."""
    normalizes = folder.normalizes if options.normalize == "auto" else options.normalize == "always"
    return PoolingConfig(
        pooling=folder.pooling if options.pooling == "auto" else options.pooling,
        normalizes=normalizes and spec.task is Task.EMBEDDINGS,
        pad_id=folder.pad_id,
    )
