"""Reconciles the engines that run with the models that should be loaded.

One keeper for each model adopts or starts the engine, and watches it, see `keeper`. A change of
folder, device or options ends the keeper and starts a new one, see `former`.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError

from vinery_accounts.base import change_signal
from vinery_accounts.base.change_signal import commit_state
from vinery_accounts.base.connections import giving_back
from vinery_accounts.base.sealed_table import SealedTable
from vinery_serving.cluster import files, lease, places
from vinery_serving.cluster.lease import HostLease, host_id
from vinery_serving.cluster.placing import place_locally
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.models import devices
from vinery_serving.models.devices import first_device
from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.host_rows import Host
from vinery_serving.models.models import ServedModel, options_text
from vinery_serving.node import adoption, device_probe, fit, status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.engine_process import END_TIMEOUT_S, EngineProcess
from vinery_serving.node.fit import Measured, Need
from vinery_serving.node.former import FormerEngines
from vinery_serving.node.job_runner import JobRunner
from vinery_serving.node.keeper import Keeper, LiveSettings, ModelSpec
from vinery_serving.node.scheduler import EngineScheduler
from vinery_serving.processes.logs.file import delete_former_engines, engine_logs
from vinery_serving.processes.logs.lines import LogEntry
from vinery_serving.processes.logs.reading import LogFollower
from vinery_serving.processes.upkeep import until_next
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.sockets import EngineAddress, engine_socket, node_socket
from vinery_serving.transport.waiting import Wait, WaitingServer

log = logging.getLogger(__name__)

# Changes are signalled, see `change_signal`, but not those of another host.
_POLL_INTERVAL_S: Final = 3.0
# How often it is stored at most which requests wait, and how often at least while some do: another
# host may have forgotten them.
_WAITS_INTERVAL_S: Final = 0.5
_WAITS_AGAIN_S: Final = 3.0
# How long more changes are waited for: a command or a form often makes several.
_SETTLE_S: Final = 0.05
# How often the logs of engines are read.
_OUTPUT_INTERVAL_S: Final = 1.0
# How often it is seen whether files of models have changed.
_FOLDERS_INTERVAL_S: Final = 10.0

_Specs = list[tuple[ModelSpec, LiveSettings]]


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
    found = adoption.find(Path(settings.VINERY_RUN_DIR), settings.VINERY_SOCKET_SECRET)
    keepers: dict[ModelSpec, Keeper] = {}
    scheduler = EngineScheduler(settings.VINERY_MODEL_MEMORY, settings.VINERY_MIN_AWAKE_S)
    formers = FormerEngines(scheduler)
    wanted = WantedModels({each.model_id for each in found})
    beside = [
        asyncio.create_task(output.follow()),
        asyncio.create_task(_renew(wanted, wake)),
        asyncio.create_task(_find_devices(wanted)),
        asyncio.create_task(_run_jobs(wanted)),
        asyncio.create_task(_note_folders(wanted)),
        asyncio.create_task(scheduler.run()),
        asyncio.create_task(_follow_waits(scheduler)),
    ]
    with change_signal.listening(wake.set):
        while not stop.is_set():
            wake.clear()
            if (specs := await wanted.read()) is not None:
                await _reconcile(keepers, specs, found, formers, scheduler)
            await _wait(wake, stop)
    await _end(keepers.values())
    await formers.end()
    await asyncio.gather(*(each.end(END_TIMEOUT_S) for each in found.values()))
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    await scheduler.spares.close()
    output.read()


class WantedModels:
    """The models that should be loaded: of the database, or at a start without the database those
    of the last node of this home."""

    def __init__(self, found: set[int]) -> None:
        """`found`: the models whose engines have outlived their node."""
        self._found = found
        self._state: object = None  # of the database, see `commit_state`
        self._host = Host(pk=host_id(), name=settings.VINERY_HOST_NAME)
        self.lease = HostLease(self._host.number, f"vinery node on {self._host}")
        self._is_leader = False
        self.ended: object = None  # the leases that had ended when this node placed last
        self._holder = ""
        self._copy = SealedTable[_Specs]("engines", _Specs)
        self._is_known = False
        # One thread: `commit_state` compares what one connection has seen.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="models")
        self.has_read = asyncio.Event()  # once this node is the one of its host
        self.leads = asyncio.Event()  # once it is the first one of its database

    async def read(self) -> dict[ModelSpec, LiveSettings] | None:
        """Returns None if nothing has changed, or is known."""
        try:
            specs = await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        except DatabaseError as error:
            log.warning("database unavailable, engines left unchanged error=%s", error)
            specs = None if self._is_known else await asyncio.to_thread(self._of_last_node)
        else:
            if not self._holder:
                self.has_read.set()
                if self._is_leader:
                    self.leads.set()
                await status.write_again()
        self._is_known = self._is_known or specs is not None
        return specs

    @giving_back
    def _read(self) -> dict[ModelSpec, LiveSettings] | None:
        taken = self.lease.renew()
        former, self._holder = self._holder, taken.other_holder
        self._is_leader = taken.is_leader
        if self._holder:
            if self._holder != former:
                log.error("another node uses this database, so this one waits: %s", self._holder)
            return None
        if not self.has_read.is_set():
            places.register()
            status.reset(self._found)
        if taken.is_leader:
            self._place()
        self._state, specs = _read_specs(self._state)
        if specs is not None:
            self._copy.keep(list(specs.items()))
        return specs

    def _place(self) -> None:
        if settings.VINERY_RAY_ADDRESS or not places.has_several_hosts():
            return
        ended = self.lease.ended()
        if ended != self.ended or commit_state() != self._state:
            places.place(self.lease, place_locally)
            self.ended = ended

    def _of_last_node(self) -> dict[ModelSpec, LiveSettings] | None:
        if (copy := self._copy.read()) is None:
            return None
        log.warning("models as the database had them %.0f s ago", time.time() - copy[0])
        return dict(copy[1])


async def _run_jobs(wanted: WantedModels) -> None:
    """Each host fetches files for itself, and the first one runs all other jobs."""
    await wanted.has_read.wait()
    await JobRunner(leads=lambda: wanted.lease.renew().is_leader).run()


async def _note_folders(wanted: WantedModels) -> None:
    await wanted.has_read.wait()
    while settings.VINERY_HOST_ADDRESS and places.has_several_hosts():
        try:
            await files.note_folders()
        except (DatabaseError, OSError) as error:
            log.warning("no other host can fetch new models from here: %s", error)
        await asyncio.sleep(_FOLDERS_INTERVAL_S)


async def _renew(wanted: WantedModels, wake: asyncio.Event) -> None:
    """Renew the lease also while engines end, and notice the ends of others."""
    while places.has_several_hosts():
        await asyncio.sleep(lease.RENEW_S)
        with contextlib.suppress(DatabaseError):
            await asyncio.to_thread(wanted.lease.renew)
        if wanted.leads.is_set() and wanted.lease.ended() != wanted.ended:
            wake.set()


async def _find_devices(wanted: WantedModels) -> None:
    try:
        found = await device_probe.find()
        devices.write(Path(settings.VINERY_RUN_DIR), found)
    except (device_probe.ProbeFailed, OSError) as error:
        log.error("the devices of this machine are unknown: %s", error)
    else:
        log.info("devices: %s", ", ".join(map(str, found)))
        await wanted.has_read.wait()
        with contextlib.suppress(DatabaseError):  # the next start writes them
            await asyncio.to_thread(giving_back(places.note_devices))


async def _follow_waits(scheduler: EngineScheduler) -> None:
    changed = asyncio.Event()

    def on_change() -> None:
        changed.set()
        scheduler.note()

    run_dir = Path(settings.VINERY_RUN_DIR)
    key = socket_key(settings.VINERY_SOCKET_SECRET, node_socket(run_dir))
    server = WaitingServer(run_dir, key, on_change)
    scheduler.waits = lambda: server.waits
    try:
        await server.start()
    except OSError as error:
        log.error("requests cannot wake models: %s", error)
    stored: Mapping[int, Wait] = {}
    is_stored = True
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAITS_AGAIN_S if stored else None):
                    await changed.wait()
            is_again = is_stored and not changed.is_set()
            changed.clear()
            waits = server.waits
            ended = {id_: Wait(0, wait.since_s) for id_, wait in stored.items() if id_ not in waits}
            is_stored = await status.report_waits({**waits, **ended}, is_again=is_again)
            stored = waits if is_stored else {**waits, **ended}
            await asyncio.sleep(_WAITS_INTERVAL_S)
    finally:
        server.close()


async def _wait(wake: asyncio.Event, stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(until_next(_POLL_INTERVAL_S)):
            await wake.wait()
            if not stop.is_set():
                await asyncio.sleep(_SETTLE_S)


async def _reconcile(
    keepers: dict[ModelSpec, Keeper],
    specs: Mapping[ModelSpec, LiveSettings],
    found: dict[EngineAddress, AdoptedEngine],
    formers: FormerEngines,
    scheduler: EngineScheduler,
) -> None:
    """Start and end engines. Takes all engines out of `found`, to adopt or to end them."""
    elsewhere = {_replica(each): each for each, asked in specs.items() if not asked.is_here}
    specs = {each: asked for each, asked in specs.items() if asked.is_here}
    wanted = {_replica(each): each for each in specs}
    surplus = [each for each in keepers if each not in specs]
    former = [each for each in surplus if _replica(each) in (wanted.keys() | elsewhere.keys())]
    await _end([keepers.pop(each) for each in surplus if each not in former])
    await asyncio.gather(*(keepers.pop(each).hand_over() for each in former))
    await formers.end_others({*wanted, *elsewhere})
    for address in [each for each in found if each not in {spec.address for spec in specs}]:
        replica = address.model_id, address.replica
        if (spec := wanted.get(replica) or elsewhere.get(replica)) is not None:
            _keep_former(spec, address, found.pop(address), formers, scheduler)
    for replica in elsewhere:
        formers.retire(*replica)
    if specs.keys() - keepers.keys():
        models = [each.name for each in specs]
        await asyncio.to_thread(delete_former_engines, Path(settings.VINERY_LOG_DIR), models)
    for each, asked in specs.items():
        if each in keepers:
            keepers[each].follow(asked)
        else:
            own = found.pop(each.address, None) or await formers.take(each.address)
            keepers[each] = Keeper(each, own, asked, scheduler, formers)
    if found:
        names = [each.file_name for each in found]
        log.info("ending engines of models that are not loaded: %s", names)
        await asyncio.gather(*(each.end(END_TIMEOUT_S) for each in found.values()))
        found.clear()


def _replica(spec: ModelSpec) -> tuple[int, int]:
    return spec.id, spec.replica


def _keep_former(
    spec: ModelSpec,
    address: EngineAddress,
    found: AdoptedEngine,
    formers: FormerEngines,
    scheduler: EngineScheduler,
) -> None:
    """Keep an engine that has outlived its node and a change of settings. The engine runs already:
    the new configuration serves only to watch it."""
    socket_path = engine_socket(Path(settings.VINERY_RUN_DIR), address)
    config = EngineConfig(
        name=spec.name,
        folder=Path(spec.folder),
        device=spec.device,
        socket_path=socket_path,
        socket_key=socket_key(settings.VINERY_SOCKET_SECRET, socket_path),
        cache_dir=Path(settings.VINERY_CACHE_DIR),
        max_context=0,
        options=EngineOptions(),
    )
    engine = EngineProcess(config, replaces_hung=settings.VINERY_HUNG_AFTER_S > 0)
    engine.keep(found)
    memory = scheduler.add(spec.id, spec.replica, spec.name, first_device(spec.device))
    memory.hold(Need(0, 0, fit.measure(found.pid)))
    memory.wake(engine)
    formers.add(address, engine, memory)


async def _end(keepers: Iterable[Keeper]) -> None:
    await asyncio.gather(*(each.end() for each in keepers))


def _read_specs(known: object) -> tuple[object, dict[ModelSpec, LiveSettings] | None]:
    """Return the state of the database, and the specs, each with what administrators have asked
    for; None if the state is `known`, and nothing has changed."""
    state = commit_state()
    if state == known:
        return state, None
    own = places.own_replicas()
    specs = {
        _spec_of(model, replica): _live_settings(
            model, is_here=own is None or (model.pk, replica) in own, is_shared=own is not None
        )
        for model in places.wanted_models()
        for replica in range(model.num_replicas)
    }
    return state, specs


def _live_settings(model: ServedModel, *, is_here: bool, is_shared: bool) -> LiveSettings:
    """`is_shared`: whether there are other hosts, whose web processes do not reach this node."""
    status, idle_s = model.status, model.idle_s
    is_measured = status.settings_digest == model.settings_digest
    loaded_bytes, peak_bytes = status.loaded_bytes, status.peak_bytes
    return LiveSettings(
        is_here=is_here,
        waited_since=status.waiting_since if is_shared and status.num_waiting_to_load else None,
        retried_at=model.retried_at,
        test_asked_at=model.test_asked_at,
        is_pinned=model.is_pinned,
        idle_limit_s=(settings.VINERY_MODEL_IDLE_S if idle_s is None else idle_s) or None,
        is_asleep=status.state == EngineState.ASLEEP,
        measured=Measured(loaded_bytes, peak_bytes)
        if is_measured and loaded_bytes is not None and peak_bytes is not None
        else None,
    )


def _spec_of(model: ServedModel, replica: int) -> ModelSpec:
    return ModelSpec(
        id=model.pk,
        name=model.name,
        folder=model.folder,
        device=model.device_of(replica),
        options=options_text(model.options),
        task=Task(model.task),
        settings_digest=model.settings_digest,
        replica=replica,
        device_number=replica % max(1, len(model.replica_devices)),
    )


class EngineOutput:
    """Repeats what the engines of this home write to their logs on the standard output of the node.

    An engine writes to a file alone, and needs no reader, because it outlives the node.
    """

    def __init__(self, folder: Path, repeat: Callable[[LogEntry], None]) -> None:
        """`repeat` takes each event. What is in the logs already is not repeated."""
        self._folder = folder
        self._repeat = repeat
        self._followers: dict[Path, LogFollower] = {}
        self._find(is_first=True)

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(until_next(_OUTPUT_INTERVAL_S))
            self.read()

    def read(self) -> None:
        self._find(is_first=False)
        for follower in self._followers.values():
            with contextlib.suppress(OSError):
                for entry in follower.read():
                    self._repeat(entry)

    def _find(self, *, is_first: bool) -> None:
        with contextlib.suppress(OSError):
            paths = engine_logs(self._folder)
            for path in self._followers.keys() - paths:
                self._followers.pop(path).close()
            for path in paths - self._followers.keys():
                self._followers[path] = LogFollower(path, from_start=not is_first)
