"""Reconciles the engines that run with the models that should be loaded.

One task for each model adopts its engine or starts one, watches it, and restarts it when it dies. A
change of folder, device or options ends the task and starts a new one.
"""

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.db.models import F
from django.utils import timezone

from vinery_accounts.base import change_signal
from vinery_accounts.base.commits import commit_state
from vinery_serving.catalog.models import EngineState, EngineStatus, ServedModel
from vinery_serving.engine.config import EngineConfig, EngineLog, parse_options
from vinery_serving.logs.entries import LogEntry
from vinery_serving.logs.folder import delete_former_engines, engine_name, log_path
from vinery_serving.node import adoption
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.backoff import Backoff
from vinery_serving.node.engine_output import EngineOutput
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.node.running_engine import end_engine
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.transport.client import engine_socket

log = logging.getLogger(__name__)

# Changes are signalled, see `change_signal`, but not those of another host.
_POLL_INTERVAL_S: Final = 3.0
# How long more changes are waited for: a command or a form often makes several.
_SETTLE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class _ModelSpec:
    """The fields of a served model that its engine depends on: equal specs need no restart."""

    id: int
    name: str
    folder: str
    device: str
    options: str  # canonical JSON, so that equal options compare equal


@dataclass(frozen=True, slots=True)
class _End:
    """Why an engine ended, and whether it had loaded its model before."""

    reason: str
    has_loaded: bool


def run(on_loop: Callable[[], None], repeat: Callable[[LogEntry], None]) -> int:
    """Run until SIGTERM or SIGINT. `on_loop` is called first, in the event loop. `repeat` takes
    what engines log."""
    asyncio.run(_watch(on_loop, repeat))
    return 0


async def _watch(on_loop: Callable[[], None], repeat: Callable[[LogEntry], None]) -> None:
    on_loop()
    output = EngineOutput(Path(settings.VINERY_LOG_DIR), repeat)
    repeating = asyncio.create_task(output.follow())
    wake, stop = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        wake.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    # First: without a node, engines end soon.
    found = adoption.find(Path(settings.VINERY_RUN_DIR))
    keepers: dict[_ModelSpec, asyncio.Task[None]] = {}
    state, is_first = None, True
    with _listening(wake.set):
        while not stop.is_set():
            wake.clear()
            try:
                if is_first:
                    await asyncio.to_thread(_reset_states, list(found))
                state, specs = await asyncio.to_thread(_read_specs, state)
            except DatabaseError as error:
                log.warning("database unavailable, engines left unchanged error=%s", error)
            else:
                is_first = False
                if specs is not None:
                    await _reconcile(keepers, specs, found)
            await _wait(wake, stop)
    await _cancel(list(keepers.values()))
    await asyncio.gather(*map(end_engine, found.values()))
    await _cancel([repeating])
    output.read()


@contextlib.contextmanager
def _listening(on_change: Callable[[], None]) -> Iterator[None]:
    """Call `on_change` after each signal of a change. Without a pipe, changes are seen later."""
    listener = None
    try:
        listener = change_signal.Listener(on_change)
    except OSError as error:
        log.warning("changes are not signalled, and take %g s: %s", _POLL_INTERVAL_S, error)
    try:
        yield
    finally:
        if listener is not None:
            listener.close()


async def _wait(wake: asyncio.Event, stop: asyncio.Event) -> None:
    """Wait for a change or the end, at most for the interval."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_POLL_INTERVAL_S):
            await wake.wait()
            if not stop.is_set():
                await asyncio.sleep(_SETTLE_S)


async def _reconcile(
    keepers: dict[_ModelSpec, asyncio.Task[None]],
    specs: set[_ModelSpec],
    found: dict[int, AdoptedEngine],
) -> None:
    """Start and end engines. Takes all engines out of `found`, to adopt or to end them."""
    surplus = [each for each in keepers if each not in specs]
    await _cancel([keepers.pop(each) for each in surplus])
    new = specs - keepers.keys()
    if new:
        models = [each.name for each in specs]
        await asyncio.to_thread(delete_former_engines, Path(settings.VINERY_LOG_DIR), models)
    for each in new:
        engine = found.pop(each.id, None)
        keepers[each] = asyncio.create_task(_keep_alive(each, engine), name=f"engine {each.name}")
    if found:
        log.info("ending engines of models that are not loaded: %s", list(found))
        await asyncio.gather(*map(end_engine, found.values()))
        found.clear()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_alive(spec: _ModelSpec, found: AdoptedEngine | None) -> None:
    """Run the model's engine until the task is cancelled, at first the one that was found."""
    backoff, num_restarts = Backoff(), 0
    loop = asyncio.get_running_loop()
    try:
        while True:
            started_at = loop.time()
            engine, found = found, None
            end = await _run_once(spec, num_restarts, engine)
            log.error("engine died", extra={"fields": {"model": spec.name, "reason": end.reason}})
            delay_s = backoff.after(loop.time() - started_at, has_loaded=end.has_loaded)
            await _report(spec, EngineState.FAILED, num_restarts, error=end.reason)
            await asyncio.sleep(delay_s)
            num_restarts += 1
    finally:
        await asyncio.shield(_report(spec, EngineState.UNLOADED, num_restarts))


async def _run_once(spec: _ModelSpec, num_restarts: int, found: AdoptedEngine | None) -> _End:
    """Run one engine process to its end."""
    try:
        config = await asyncio.to_thread(_new_config, spec)
    except (UnusableFolder, ValueError, OSError) as error:
        if found is not None:
            await end_engine(found)
        return _End(str(error), has_loaded=False)
    has_loaded = False
    engine = EngineProcess(config, replaces_hung=settings.VINERY_HUNG_AFTER_S > 0)
    try:
        if found is not None and await engine.adopt(found):
            _log_pid("engine adopted", spec, engine)
        else:
            await _report(spec, EngineState.LOADING, num_restarts)
            await engine.start()
            _log_pid("engine ready", spec, engine)
        has_loaded = True
        await _report(spec, EngineState.READY, num_restarts, pid=engine.pid)
        await engine.watch()
    except EngineDied as died:
        return _End(str(died), has_loaded)
    finally:
        await asyncio.shield(engine.end())


def _log_pid(event: str, spec: _ModelSpec, engine: EngineProcess) -> None:
    log.info(event, extra={"fields": {"model": spec.name, "pid": engine.pid}})


def _new_config(spec: _ModelSpec) -> EngineConfig:
    """Raises UnusableFolder, ValueError or OSError with a sentence for the administrator."""
    folder = ModelFolder.read(Path(spec.folder))
    options = parse_options(json.loads(spec.options))
    return EngineConfig(
        name=spec.name,
        folder=Path(spec.folder),
        device=spec.device,
        socket_path=engine_socket(Path(settings.VINERY_RUN_DIR), spec.id),
        cache_dir=Path(settings.VINERY_CACHE_DIR) / f"model-{spec.id}",
        usage_dir=Path(settings.VINERY_USAGE_DIR),
        sysfs=settings.VINERY_SYSFS,
        max_context=options.max_context or folder.max_context or 0,
        options=options,
        log=_new_log(spec.name),
    )


def _new_log(model: str) -> EngineLog:
    log_settings = settings.VINERY_LOG
    return EngineLog(
        path=log_path(Path(settings.VINERY_LOG_DIR), engine_name(model)),
        is_json=log_settings.is_json,
        level=log_settings.level,
        max_bytes=log_settings.bounds.max_bytes,
        num_files=log_settings.bounds.num_files,
    )


def _read_specs(known: object) -> tuple[object, set[_ModelSpec] | None]:
    """Return the state of the database, and the specs; None if it is `known`, and nothing has
    changed."""
    state = commit_state()
    if state == known:
        return state, None
    specs = {
        _ModelSpec(
            model.pk,
            model.name,
            model.folder,
            model.device,
            json.dumps(model.options, sort_keys=True),
        )
        for model in ServedModel.objects.filter(is_loaded=True)
    }
    close_old_connections()
    return state, specs


async def _report(
    spec: _ModelSpec,
    state: EngineState,
    num_restarts: int,
    *,
    error: str = "",
    pid: int | None = None,
) -> None:
    """Write the state for administrators. A database that is unavailable must not end an engine.

    The last error stays visible until the engine is ready again.
    """
    values: dict[str, object] = {"state": state, "num_restarts": num_restarts, "pid": pid}
    if error or state is EngineState.READY:
        values["last_error"] = error
        values["num_failures_in_row"] = (F("num_failures_in_row") + 1) if error else 0
    try:
        await asyncio.to_thread(_write_status, spec.id, values)
    except DatabaseError as failure:
        named = {"model": spec.name, "state": state, "error": failure}
        log.warning("state not written", extra={"fields": named})


def _write_status(model_id: int, values: dict[str, object]) -> None:
    if ServedModel.objects.filter(pk=model_id).exists():
        EngineStatus.objects.get_or_create(model_id=model_id)
        changed = {**values, "changed_at": timezone.now()}
        EngineStatus.objects.filter(model_id=model_id).update(**changed)
        change_signal.send()
    close_old_connections()


def _reset_states(found: Collection[int]) -> None:
    """The last node's states are obsolete, except of engines that have outlived it."""
    EngineStatus.objects.exclude(model_id__in=found).update(state=EngineState.UNLOADED, pid=None)
    close_old_connections()
