"""Reconciles the engines that run with the models that should be loaded.

One keeper for each model adopts its engine or starts one, and watches it, see `keeper`. A change of
folder, device or options ends the keeper and starts a new one.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings
from django.db import DatabaseError, close_old_connections

from vinery_accounts.base import change_signal
from vinery_accounts.base.commits import commit_state
from vinery_serving.catalog import devices
from vinery_serving.catalog.models import ServedModel, options_text
from vinery_serving.core.tasks import Task
from vinery_serving.logs.entries import LogEntry
from vinery_serving.logs.folder import delete_former_engines
from vinery_serving.node import adoption, device_probe, status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.engine_output import EngineOutput
from vinery_serving.node.job_runner import JobRunner
from vinery_serving.node.keeper import Keeper, ModelSpec
from vinery_serving.node.running_engine import end_engine

log = logging.getLogger(__name__)

# Changes are signalled, see `change_signal`, but not those of another host.
_POLL_INTERVAL_S: Final = 3.0
# How long more changes are waited for: a command or a form often makes several.
_SETTLE_S: Final = 0.05


class Asked(NamedTuple):
    """When an administrator asked for these, besides loading the model."""

    retried_at: datetime | None  # to try again
    test_asked_at: datetime | None  # to show it known pictures; None: nothing is left to do


def run(on_loop: Callable[[], None], repeat: Callable[[LogEntry], None]) -> int:
    """Run until SIGTERM or SIGINT. `on_loop` is called first, in the event loop. `repeat` takes
    what engines log."""
    asyncio.run(_watch(on_loop, repeat))
    return 0


async def _watch(on_loop: Callable[[], None], repeat: Callable[[LogEntry], None]) -> None:
    on_loop()
    output = EngineOutput(Path(settings.VINERY_LOG_DIR), repeat)
    wake, stop = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        wake.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    # First: without a node, engines end soon.
    found = adoption.find(Path(settings.VINERY_RUN_DIR))
    keepers: dict[ModelSpec, Keeper] = {}
    beside = [
        asyncio.create_task(output.follow()),
        asyncio.create_task(_find_devices()),
        asyncio.create_task(JobRunner().run()),
    ]
    state, is_first = None, True
    with _listening(wake.set):
        while not stop.is_set():
            wake.clear()
            try:
                if is_first:
                    await asyncio.to_thread(status.reset, list(found))
                state, specs = await asyncio.to_thread(_read_specs, state)
            except DatabaseError as error:
                log.warning("database unavailable, engines left unchanged error=%s", error)
            else:
                is_first = False
                if specs is not None:
                    await _reconcile(keepers, specs, found)
            await _wait(wake, stop)
    await _end(keepers.values())
    await asyncio.gather(*map(end_engine, found.values()))
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    output.read()


async def _find_devices() -> None:
    """Store the devices of this machine for the other processes."""
    try:
        found = await device_probe.find()
        devices.write(Path(settings.VINERY_RUN_DIR), found)
    except (device_probe.ProbeFailed, OSError) as error:
        log.error("the devices of this machine are unknown: %s", error)
    else:
        log.info("devices: %s", ", ".join(map(str, found)))


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
    keepers: dict[ModelSpec, Keeper],
    specs: Mapping[ModelSpec, Asked],
    found: dict[int, AdoptedEngine],
) -> None:
    """Start and end engines. Takes all engines out of `found`, to adopt or to end them."""
    surplus = [each for each in keepers if each not in specs]
    await _end([keepers.pop(each) for each in surplus])
    if specs.keys() - keepers.keys():
        models = [each.name for each in specs]
        await asyncio.to_thread(delete_former_engines, Path(settings.VINERY_LOG_DIR), models)
    for each, asked in specs.items():
        if each in keepers:
            keepers[each].retry(asked.retried_at)
        else:
            keepers[each] = Keeper(each, found.pop(each.id, None), asked.retried_at)
        if asked.test_asked_at is not None:
            keepers[each].test_pictures(asked.test_asked_at)
    if found:
        log.info("ending engines of models that are not loaded: %s", list(found))
        await asyncio.gather(*map(end_engine, found.values()))
        found.clear()


async def _end(keepers: Iterable[Keeper]) -> None:
    await asyncio.gather(*(each.end() for each in keepers))


def _read_specs(known: object) -> tuple[object, dict[ModelSpec, Asked] | None]:
    """Return the state of the database, and the specs, each with what administrators have asked
    for; None if the state is `known`, and nothing has changed."""
    state = commit_state()
    if state == known:
        return state, None
    # Of a model without a folder, a job makes it first.
    wanted = ServedModel.objects.filter(is_loaded=True).exclude(folder="")
    models = wanted.select_related("engine")
    specs = {_spec_of(model): Asked(model.retried_at, model.test_asked_at) for model in models}
    close_old_connections()
    return state, specs


def _spec_of(model: ServedModel) -> ModelSpec:
    options = options_text(model.options)
    return ModelSpec(model.pk, model.name, model.folder, model.device, options, Task(model.task))
