"""Reconciles the engines that run with the models that should be loaded.

One task for each model starts its engine, watches it, and restarts it when it dies. A change of
folder, device or options ends the task and starts a new one.
"""

import asyncio
import contextlib
import json
import logging
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError, close_old_connections

from serving.catalog.models import EngineState, EngineStatus, ServedModel
from serving.engine.config import EngineConfig, parse_options
from serving.node.engine_process import EngineDied, EngineProcess
from serving.prompting.folder import ModelFolder, UnusableFolder
from serving.transport.client import engine_socket

log = logging.getLogger(__name__)

_POLL_INTERVAL_S: Final = 0.3
# The delay before a restart doubles while the engine dies soon after its start.
_FIRST_BACKOFF_S: Final = 0.1
_MAX_BACKOFF_S: Final = 15.0
_STABLE_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _ModelSpec:
    """The fields of a served model that its engine depends on: equal specs need no restart."""

    id: int
    name: str
    folder: str
    device: str
    options: str  # canonical JSON, so that equal options compare equal


def run() -> int:
    """Run until SIGTERM or SIGINT."""
    asyncio.run(_watch())
    return 0


async def _watch() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await asyncio.to_thread(_reset_states)
    keepers: dict[_ModelSpec, asyncio.Task[None]] = {}
    while not stop.is_set():
        try:
            specs = await asyncio.to_thread(_read_specs)
        except DatabaseError as error:
            log.warning("database unavailable, engines left unchanged error=%s", error)
        else:
            await _reconcile(keepers, specs)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_INTERVAL_S):
                await stop.wait()
    await _cancel(list(keepers.values()))


async def _reconcile(keepers: dict[_ModelSpec, asyncio.Task[None]], specs: set[_ModelSpec]) -> None:
    surplus = [each for each in keepers if each not in specs]
    await _cancel([keepers.pop(each) for each in surplus])
    for each in specs - keepers.keys():
        keepers[each] = asyncio.create_task(_keep_alive(each), name=f"engine {each.name}")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_alive(spec: _ModelSpec) -> None:
    """Run the model's engine until the task is cancelled."""
    backoff_s, num_restarts = _FIRST_BACKOFF_S, 0
    loop = asyncio.get_running_loop()
    try:
        while True:
            started_at = loop.time()
            reason = await _run_once(spec, num_restarts)
            log.error("engine died model=%s reason=%s", spec.name, reason)
            if loop.time() - started_at > _STABLE_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            await _report(spec, EngineState.FAILED, num_restarts, error=reason)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
            num_restarts += 1
    finally:
        await asyncio.shield(_report(spec, EngineState.UNLOADED, num_restarts))


async def _run_once(spec: _ModelSpec, num_restarts: int) -> str:
    """Run one engine process to its end. Returns why it ended."""
    try:
        config = await asyncio.to_thread(_new_config, spec)
    except (UnusableFolder, ValueError, OSError) as error:
        return str(error)
    engine = EngineProcess(config)
    try:
        await _report(spec, EngineState.LOADING, num_restarts)
        await engine.start()
        log.info("engine ready model=%s pid=%s", spec.name, engine.pid)
        await _report(spec, EngineState.READY, num_restarts, pid=engine.pid)
        await engine.watch()
    except EngineDied as died:
        return str(died)
    finally:
        await asyncio.shield(engine.end())


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
    )


def _read_specs() -> set[_ModelSpec]:
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
    return specs


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
    try:
        await asyncio.to_thread(_write_status, spec.id, values)
    except DatabaseError as failure:
        log.warning("state not written model=%s state=%s error=%s", spec.name, state, failure)


def _write_status(model_id: int, values: dict[str, object]) -> None:
    if ServedModel.objects.filter(pk=model_id).exists():
        EngineStatus.objects.update_or_create(model_id=model_id, defaults=values)
    close_old_connections()


def _reset_states() -> None:
    """No engine outlives its node, so the last node's states are obsolete."""
    EngineStatus.objects.update(state=EngineState.UNLOADED, pid=None)
    close_old_connections()
