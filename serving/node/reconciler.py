"""Compares which models should be loaded with which engines run, and closes the gap.

One task for each wanted model starts its engine, watches it, and starts it again when it
dies. A change of folder, device or options ends the task and begins a new one.
"""

from __future__ import annotations

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
# An engine that dies soon after its start is started again ever more slowly.
_FIRST_BACKOFF_S: Final = 0.1
_MAX_BACKOFF_S: Final = 15.0
_STABLE_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """All of a row that an engine depends on: two equal values need no restart."""

    id: int
    name: str
    folder: str
    device: str
    options: str  # canonical, because a value must be comparable


def run() -> int:
    """Run until SIGTERM or SIGINT."""
    asyncio.run(_watch())
    return 0


async def _watch() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await asyncio.to_thread(_forget_old_states)
    keepers: dict[_Wanted, asyncio.Task[None]] = {}
    while not stop.is_set():
        try:
            wanted = await asyncio.to_thread(_read_wanted)
        except DatabaseError as error:
            log.warning("database away, engines stay as they are: %s", error)
        else:
            await _close_gap(keepers, wanted)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_INTERVAL_S):
                await stop.wait()
    await _cancel(list(keepers.values()))


async def _close_gap(keepers: dict[_Wanted, asyncio.Task[None]], wanted: set[_Wanted]) -> None:
    surplus = [each for each in keepers if each not in wanted]
    await _cancel([keepers.pop(each) for each in surplus])
    for each in wanted - keepers.keys():
        keepers[each] = asyncio.create_task(_keep_alive(each), name=f"engine {each.name}")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_alive(wanted: _Wanted) -> None:
    """Never returns; cancelled when the model is not wanted any more."""
    backoff_s, num_restarts = _FIRST_BACKOFF_S, 0
    loop = asyncio.get_running_loop()
    try:
        while True:
            started_at = loop.time()
            reason = await _run_once(wanted, num_restarts)
            log.error("engine died model=%s: %s", wanted.name, reason)
            if loop.time() - started_at > _STABLE_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            await _report(wanted, EngineState.FAILED, num_restarts, error=reason)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
            num_restarts += 1
    finally:
        await asyncio.shield(_report(wanted, EngineState.UNLOADED, num_restarts))


async def _run_once(wanted: _Wanted, num_restarts: int) -> str:
    """Run one engine process to its end; why it ended."""
    try:
        config = await asyncio.to_thread(_configure, wanted)
    except (UnusableFolder, ValueError, OSError) as error:
        return str(error)
    engine = EngineProcess(config)
    try:
        await _report(wanted, EngineState.LOADING, num_restarts)
        await engine.start()
        log.info("engine ready model=%s pid=%s", wanted.name, engine.pid)
        await _report(wanted, EngineState.READY, num_restarts, pid=engine.pid)
        await engine.watch()
    except EngineDied as died:
        return str(died)
    finally:
        await asyncio.shield(engine.end())
    raise AssertionError("watch returns only by raising")


def _configure(wanted: _Wanted) -> EngineConfig:
    """Raises `UnusableFolder`, ValueError or OSError with a sentence for the admin."""
    folder = ModelFolder.read(Path(wanted.folder))
    options = parse_options(json.loads(wanted.options))
    return EngineConfig(
        name=wanted.name,
        folder=Path(wanted.folder),
        device=wanted.device,
        socket_path=engine_socket(Path(settings.VINERY_RUN_DIR), wanted.id),
        cache_dir=Path(settings.VINERY_CACHE_DIR) / f"model-{wanted.id}",
        usage_dir=Path(settings.VINERY_USAGE_DIR),
        sysfs=settings.VINERY_SYSFS,
        max_context=options.max_context or folder.max_context or 0,
        options=options,
    )


def _read_wanted() -> set[_Wanted]:
    rows = ServedModel.objects.filter(is_loaded=True)
    wanted = {
        _Wanted(row.pk, row.name, row.folder, row.device, json.dumps(row.options, sort_keys=True))
        for row in rows
    }
    close_old_connections()
    return wanted


async def _report(
    wanted: _Wanted,
    state: EngineState,
    num_restarts: int,
    *,
    error: str = "",
    pid: int | None = None,
) -> None:
    """Tell the administrators; a database that is away must not end an engine.

    The error stays visible while the engine loads again, until it is ready.
    """
    values: dict[str, object] = {"state": state, "num_restarts": num_restarts, "pid": pid}
    if error or state is EngineState.READY:
        values["last_error"] = error
    try:
        await asyncio.to_thread(_write_status, wanted.id, values)
    except DatabaseError as failure:
        log.warning("could not report model=%s state=%s: %s", wanted.name, state, failure)


def _write_status(model_id: int, values: dict[str, object]) -> None:
    if ServedModel.objects.filter(pk=model_id).exists():
        EngineStatus.objects.update_or_create(model_id=model_id, defaults=values)
    close_old_connections()


def _forget_old_states() -> None:
    """No engine outlives its node, so what the last node saw is over."""
    EngineStatus.objects.update(state=EngineState.UNLOADED, pid=None)
    close_old_connections()
