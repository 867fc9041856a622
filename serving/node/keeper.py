"""Keeps the engine of one model alive: adopts it or starts it, watches it, and starts it again.

A model that cannot load is tried a few times, see `backoff`, and then stays failed until its files
change or an administrator asks to try again. A change of its settings ends its keeper; the next one
begins anew.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from vinery_serving.catalog.models import EngineState, settings_digest
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import (
    EngineConfig,
    EngineLog,
    EngineOptions,
    PoolingConfig,
    parse_options,
)
from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.node import status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.backoff import Backoff, FailureKind, LoadAttempts
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.node.folder_state import FolderState, folder_state
from vinery_serving.node.load_errors import LoadFailure, killed, load_failure
from vinery_serving.node.running_engine import end_engine
from vinery_serving.node.weights import UnusableWeights, check_weights
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.pooling_folder import PoolingFolder
from vinery_serving.prompting.template import ChatTemplate
from vinery_serving.transport.client import engine_socket

log = logging.getLogger(__name__)

# How often the files of a failed model are compared. They have changed when they differ from those
# that failed and are the same twice in a row, so a copy that is being written is left alone.
_FILES_INTERVAL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The fields of a served model that its engine depends on: equal specs need no restart."""

    id: int
    name: str
    folder: str
    device: str
    options: str  # canonical JSON, so that equal options compare equal
    task: Task = Task.CHAT

    @property
    def digest(self) -> str:
        """As `ServedModel.settings_digest`."""
        return settings_digest(self.name, self.folder, self.device, self.options)


@dataclass(frozen=True, slots=True)
class _Crash:
    """The end of an engine that had loaded."""

    text: str


class Keeper:
    """Runs the engine of a model until `end`, at first the one that was found."""

    def __init__(
        self, spec: ModelSpec, found: AdoptedEngine | None, retried_at: datetime | None
    ) -> None:
        self._spec = spec
        self._retried_at = retried_at
        self._asked = asyncio.Event()
        self._num_restarts = 0
        self._attempts = LoadAttempts()
        self._ready: EngineProcess | None = None  # while it serves
        self._testing: asyncio.Task[None] | None = None
        self._loaded_files: FolderState | None = None  # those with which an engine has loaded
        self._task = asyncio.create_task(self._keep_alive(found), name=f"engine {spec.name}")

    def retry(self, retried_at: datetime | None) -> None:
        """Try again now if the model waits for an attempt or has failed, and this moment is new:
        at it, an administrator has asked."""
        if retried_at != self._retried_at:
            self._retried_at = retried_at
            self._asked.set()

    def test_pictures(self, asked_at: datetime) -> None:
        """Show the model known pictures, for which an administrator has asked, unless this is under
        way. An engine that does not serve yet does so by itself."""
        is_testing = self._testing is not None and not self._testing.done()
        if self._ready is not None and not is_testing:
            testing = self._test_pictures(self._ready, asked_at)
            self._testing = asyncio.create_task(testing, name=f"pictures {self._spec.name}")

    async def _test_pictures(self, engine: EngineProcess, asked_at: datetime) -> None:
        pictures = await engine.test_pictures()
        await status.report_pictures(self._spec.id, pictures, asked_at)

    async def end(self) -> None:
        """End the engine."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_alive(self, found: AdoptedEngine | None) -> None:
        backoff, loop = Backoff(), asyncio.get_running_loop()
        try:
            while True:
                started_at, files = loop.time(), await self._read_files()
                end = await self._run_once(found, files)
                found = None
                fields = {"model": self._spec.name, "reason": end.text}
                if isinstance(end, _Crash):
                    log.error("engine died", extra={"fields": fields})
                    await self._report(EngineState.LOADING, error=end.text)
                    await asyncio.sleep(backoff.after(loop.time() - started_at))
                else:
                    log.error("model does not load", extra={"fields": fields})
                    await self._wait_for_next_attempt(end, files)
                self._num_restarts += 1
        finally:
            await asyncio.shield(self._report(EngineState.UNLOADED))

    async def _run_once(
        self, found: AdoptedEngine | None, files: FolderState
    ) -> _Crash | LoadFailure:
        """Run one engine process to its end."""
        try:
            config = await asyncio.to_thread(_new_config, self._spec)
            # Streams wait for the next engine, and an engine that runs proves its files.
            if found is None and files != self._loaded_files:
                await asyncio.to_thread(_check_weights, self._spec)
            engine = EngineProcess(config, replaces_hung=settings.VINERY_HUNG_AFTER_S > 0)
        except (UnusableFolder, UnusableWeights, ValueError, OSError) as error:
            if found is not None:
                await end_engine(found)
            is_passing = isinstance(error, OSError)
            kind = FailureKind.PASSING if is_passing else FailureKind.FINAL
            return LoadFailure(kind, str(error))
        has_loaded = False
        try:
            await self._start(engine, found)
            has_loaded, self._loaded_files, self._attempts = True, files, LoadAttempts()
            self._asked.clear()
            await self._report(
                EngineState.READY,
                pid=engine.pid,
                max_context=config.max_context,
                pictures=engine.pictures,
            )
            self._ready = engine
            await engine.watch()
        except (EngineDied, OSError) as error:  # such as too many open files in this process
            if has_loaded:
                return _Crash(str(error))
            is_killed = isinstance(error, EngineDied) and error.is_killed
            return killed(str(error)) if is_killed else load_failure(str(error))
        finally:
            self._ready = None
            if self._testing is not None:
                self._testing.cancel()
            await asyncio.shield(engine.end())

    async def _start(self, engine: EngineProcess, found: AdoptedEngine | None) -> None:
        """Adopt the engine that was found, or start one. Raises EngineDied."""
        if found is not None and await engine.adopt(found):
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
        # What comes is about other files, or another try: the old error would mislead.
        await self._report(EngineState.LOADING, forgets_error=True)

    async def _wait_for_change(self, failed: FolderState) -> None:
        """Wait until the files differ from those that failed, or an administrator asks."""
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
        return await asyncio.to_thread(folder_state, _folders(self._spec))

    def _log_pid(self, event: str, engine: EngineProcess) -> None:
        log.info(event, extra={"fields": {"model": self._spec.name, "pid": engine.pid}})

    async def _report(self, state: EngineState, **details: Any) -> None:
        spec = self._spec
        subject = status.Subject(spec.id, spec.digest)
        await status.report(subject, state, self._num_restarts, self._attempts, **details)


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
    """Return the folders with the model's files: its own, and those of its draft model and of its
    adapters."""
    options = json.loads(spec.options)
    adapters = [each.get("path") for each in options.get("adapters", ()) if isinstance(each, dict)]
    paths = (spec.folder, options.get("draft_model"), *adapters)
    named = [Path(each) for each in paths if each and isinstance(each, str)]
    return [each.parent if each.is_file() else each for each in named]


def _check_weights(spec: ModelSpec) -> None:
    """Raises UnusableWeights or OSError."""
    for each in _folders(spec):
        check_weights(each)


def _new_config(spec: ModelSpec) -> EngineConfig:
    """Raises UnusableFolder, ValueError or OSError with a sentence for the administrator."""
    options = parse_options(json.loads(spec.options), spec.task)
    folder = ModelFolder.read(Path(spec.folder), options.chat_template)
    if options.chat_template and folder.templates is not None:
        ChatTemplate(folder.templates.default)  # an administrator reads here why it is wrong
    pooling = None if spec.task.is_generation else PoolingFolder.read(folder)
    return EngineConfig(
        name=spec.name,
        folder=Path(spec.folder),
        device=spec.device,
        socket_path=engine_socket(Path(settings.VINERY_RUN_DIR), spec.id),
        cache_dir=Path(settings.VINERY_CACHE_DIR) / f"model-{spec.id}",
        usage_dir=Path(settings.VINERY_USAGE_DIR),
        sysfs=settings.VINERY_SYSFS,
        max_context=_max_context(options, folder, pooling) or 0,
        options=options,
        task=spec.task,
        pooling=PoolingConfig() if pooling is None else _pooling_config(spec, options, pooling),
        log=_new_log(spec.name),
    )


def _max_context(
    options: EngineOptions, folder: ModelFolder, pooling: PoolingFolder | None
) -> int | None:
    if pooling is None:
        return options.context_of(folder.max_context)
    return options.max_context or pooling.max_tokens


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
