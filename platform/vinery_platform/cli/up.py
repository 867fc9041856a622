"""`vinery up`: run all processes on this machine under one supervisor.

The command checks the settings, locks the home folder, binds the port, and runs `vinery prepare` in
a child. Then the command starts node, web and jobs, and prints the addresses once a web process
answers, in a terminal also the credentials. A child with `vinery wait` prints the progress of the
models. This process does not import Django.
"""

import argparse
import asyncio
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vinery_accounts.base.files import write_private
from vinery_platform import __version__
from vinery_platform.cli.ready import greet, health
from vinery_platform.cli.services import PREPARED_LATER
from vinery_platform.cli.shape import add_switch
from vinery_platform.config import env, secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import REPOSITORY, Credentials, Home, RunningServer
from vinery_platform.processes import log_setup as logs
from vinery_platform.processes.heartbeats import RELOAD, RELOAD_NOTE
from vinery_platform.processes.listening import Address, listen, server_for
from vinery_platform.processes.memory import max_web_memory_from_env
from vinery_platform.processes.supervisor import Orphans, Service, Supervisor
from vinery_serving.processes import confine, parent

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_OPEN_FILES = 65_536
_READINESS_POLL_S = 0.2
_PREPARE_AGAIN_S = 10.0
_LATE_S = 30.0
# A little more than the supervisor needs to end in order, after the requests that run.
_PARENT_GRACE_S = 12.0
# `make` passes on a SIGTERM to its whole group, so the signal may come twice at once.
_TWICE_WITHIN_S = 1.0

# By default each thread of glibc keeps freed memory for itself.
_FEW_ARENAS = (("MALLOC_ARENA_MAX", "2"),)

# The folders that `--reload` watches.
_SOURCES = ("accounts", "platform", "serving", "templates")
# Processes that end by themselves.
_BRIEF = frozenset({"prepare", "wait"})
# Of another program, which knows nothing of the supervisor.
_SILENT = frozenset({"ray-node"})
_SUFFIXES = frozenset({".css", ".html", ".js", ".lua", ".py", ".svg", ".txt"})
_RELOAD_POLL_S = 0.5


_WARM = Service(
    "warm",
    # Long enough for the command lines of forks.
    (sys.executable, "-m", "vinery_platform.cli.warm", "forks the other processes of this home"),
    is_replaceable=True,
    environment=_FEW_ARENAS,
    forks_others=True,
)


@dataclass(frozen=True, slots=True)
class Plan:
    home: Home
    address: Address
    num_web_workers: int
    hung_after_s: int = 0
    max_web_memory_mb: int = 0
    is_reloading: bool = False
    drain_s: int = 0  # for requests that run when all ends
    has_ray: bool = False

    def environment(self) -> Mapping[str, str]:
        """The environment of the children: settings as this process has resolved them."""
        # New processes read the configuration file again.
        own = {name: each for name, each in os.environ.items() if env.origin_of(name) is None}
        return own | {
            "VINERY_HOME": str(self.home.path),
            "VINERY_HOST": self.address.host,
            "VINERY_PORT": str(self.address.port),
        }

    def services(self, fd: int) -> tuple[Service, ...]:
        """All services, in the order of their start."""
        web = _service("web", "web", "--fd", str(fd), fds=(fd,), is_front=True)
        web = replace(web, is_replaceable=True, max_memory_mb=self.max_web_memory_mb)
        webs = [replace(web, name=f"web-{at + 1}") for at in range(self.num_web_workers)]
        relays = () if Address.of_relay() is None else (_service("relay", "relay"),)
        warm = (_WARM,) if sys.platform == "linux" else ()
        jobs = _service("jobs", "jobs", is_front=True)
        of_ray = [_service(each, each) for each in ("agent", "ray-node") if self.has_ray]
        return (*warm, *relays, _service("node", "node"), *webs, jobs, *of_ray)


def add_up(parser: argparse.ArgumentParser) -> None:
    text = "end when the process that started this one ends (for make)"
    add_switch(parser, "--end-with-parent", text)
    text = "restart web and jobs processes when code or templates change (for development)"
    add_switch(parser, "--reload", text)


def _check_confinement() -> None:
    if env.choice("VINERY_CONFINE") != "required":
        return
    if missing := confine.ESSENTIAL - confine.available():
        raise SettingError(
            f"VINERY_CONFINE=required, and this system lacks: {', '.join(sorted(missing))}. Use "
            "Linux 5.13 or newer with Landlock and seccomp on x86-64 or AArch64, or "
            "VINERY_CONFINE=auto."
        )


def run_up(arguments: argparse.Namespace) -> int:
    """Prepare the home folder, start web, node and jobs processes, and keep them running. Ctrl-C or
    SIGTERM ends all of them; a second Ctrl-C kills them."""
    if arguments.reload and REPOSITORY is None:
        raise SettingError("--reload is for a clone of the repository, and this is a package.")
    _check_confinement()
    if arguments.end_with_parent:
        grace_s = env.integer("VINERY_DRAIN_S") + _PARENT_GRACE_S
        parent.end_gently_with(os.getppid(), grace_s=grace_s)
    logs.LogSettings.from_env()  # wrong ones are reported before anything is created
    plan = Plan(
        Home.from_env(),
        Address.from_env(),
        env.integer("VINERY_WEB_WORKERS"),
        env.integer("VINERY_HUNG_AFTER_S"),
        max_web_memory_from_env(),
        arguments.reload,
        env.integer("VINERY_DRAIN_S"),
        env.choice("VINERY_PLACEMENT") == "ray",
    )
    if (other := RunningServer.read(plan.home)) is not None:
        return _answer_beside(other, plan)
    if not plan.home.path.exists():
        listen(plan.address).close()  # a used port leaves no new home behind
    plan.home.create()
    secret_files.create_missing(plan.home)  # before any process reads its settings
    with plan.home.locked(), listen(plan.address) as server:
        server_for(server)
        logs.begin("supervisor")
        _allow_many_open_files()
        port = server.getsockname()[1]
        plan = replace(plan, address=replace(plan.address, port=port))
        return asyncio.run(_run(plan, server))


def _answer_beside(other: RunningServer, plan: Plan) -> int:
    """Report that this home is served already. Raises `SettingError` if another port is wanted."""
    port = plan.address.port
    if port and not other.base_url.endswith(f":{port}"):
        raise SettingError(
            f"Vinery already runs with the home {plan.home.path} at {other.base_url} (process "
            f"{other.pid}). Stop that one, or set VINERY_HOME to another folder."
        )
    logs.show(
        f"Vinery already runs with the home {plan.home.path} at {other.base_url} (process "
        f"{other.pid}). To stop it: kill {other.pid}"
    )
    return 0


async def _run(plan: Plan, server: socket.socket) -> int:
    noted = RunningServer.write(plan.home, plan.address.base_url, __version__)
    supervisor = Supervisor(plan.environment(), plan.hung_after_s, plan.drain_s)
    secret = partial(secret_files.socket_secret, plan.home)
    orphans = Orphans(lambda: supervisor.pids, plan.home.run, secret)
    EndSignals(supervisor, plan.drain_s).obey()
    asyncio.get_running_loop().add_signal_handler(RELOAD, _reload_web, plan, supervisor)
    orphans.begin()
    is_first_start = Credentials.read(plan.home.bootstrap_file) is None
    logs.announce(f"preparing {plan.home.path}")
    services = plan.services(server.fileno())
    if services[0].forks_others:
        supervisor.begin(services[0])
    status = await supervisor.run_once(_service("prepare", "prepare"))
    if supervisor.is_stopping:
        return 0
    if status not in (0, PREPARED_LATER):
        return status if status > 0 else 1
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_greet(plan, noted, supervisor, is_first_start=is_first_start))
        beside = [tasks.create_task(_reload(plan, supervisor, services))]
        if status == PREPARED_LATER:
            beside.append(tasks.create_task(_prepare_later(supervisor)))
        await supervisor.run(services)
        await orphans.end()
        for task in beside:
            task.cancel()
    _ignore_signals()
    logs.announce("stopped")
    return 0


async def _prepare_later(supervisor: Supervisor) -> None:
    """Prepare again until the database answers: it may need migrations of this version."""
    logs.announce("the database is away: serving what was read from it before")
    while True:
        await asyncio.sleep(_PREPARE_AGAIN_S)
        try:
            status = await supervisor.run_once(_service("prepare", "prepare"))
        except OSError as error:  # the services that run go on
            logs.announce(f"cannot prepare: {error.strerror}")
            continue
        if supervisor.is_stopping:
            return
        if status == 0:
            logs.announce("the database is back")
            return


def _reload_web(plan: Plan, supervisor: Supervisor) -> None:
    note = plan.home.run / RELOAD_NOTE
    # With the time, so that `vinery reload` sees that the note is new.
    supervisor.reload(lambda why_not: write_private(note, f"{time.time()} {why_not}"))


async def _greet(
    plan: Plan, noted: RunningServer, supervisor: Supervisor, *, is_first_start: bool
) -> None:
    if not await _wait_for_web(noted.base_url, supervisor):
        return
    greet(noted, plan.home, is_first_start=is_first_start)
    await supervisor.run_once(_service("wait", "wait", "--example"))


async def _wait_for_web(base_url: str, supervisor: Supervisor) -> bool:
    """Return whether the web process answers; not so if all processes are to end before."""
    clock = asyncio.get_running_loop().time
    late_at = clock() + _LATE_S
    while await asyncio.to_thread(health, base_url) is None:
        if supervisor.is_stopping:
            return False
        if clock() >= late_at:
            logs.announce("no web process answers yet; see: vinery logs --process web")
            late_at = float("inf")
        await asyncio.sleep(_READINESS_POLL_S)
    return True


async def _reload(plan: Plan, supervisor: Supervisor, services: Iterable[Service]) -> None:
    """Restart web and jobs processes after each change. The node keeps its models loaded."""
    if not plan.is_reloading:
        return
    front = [service for service in services if service.is_front]
    assert REPOSITORY is not None  # `run` refuses `--reload` without a clone
    async for paths in changed_files([REPOSITORY / name for name in _SOURCES]):
        logs.announce(f"restarting after a change of {min(paths)}")
        # First, so that a preparation runs the new code, too.
        supervisor.restart(each for each in services if each.forks_others)
        if any("migrations" in path.parts for path in paths):
            await supervisor.run_once(_service("prepare", "prepare"))
        supervisor.restart(front)


async def changed_files(folders: Sequence[Path]) -> AsyncIterator[Collection[Path]]:
    """Yield the source files that were added, changed or removed since the last yield. A scan takes
    a few milliseconds."""
    known = await asyncio.to_thread(modification_times, folders)
    while True:
        await asyncio.sleep(_RELOAD_POLL_S)
        found = await asyncio.to_thread(modification_times, folders)
        if changed := {path for path, _ in known.items() ^ found.items()}:
            known = found
            yield changed


def modification_times(folders: Sequence[Path]) -> dict[Path, int]:
    """The modification time of each source file below the folders, in nanoseconds."""
    times = {}
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.suffix in _SUFFIXES:
            with suppress(FileNotFoundError):  # removed since the folder was listed
                times[path] = path.stat().st_mtime_ns
    return times


class EndSignals:
    """The first signal to end lets running requests finish, the next one kills all processes."""

    def __init__(
        self, supervisor: Supervisor, drain_s: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds."""
        self._supervisor = supervisor
        self._drain_s = drain_s
        self._clock = clock
        self._stopped_at_s = 0.0

    def obey(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _END_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self.take, number)

    def take(self, number: signal.Signals) -> None:
        if not self._supervisor.is_stopping:
            self._stopped_at_s = self._clock()
            logs.announce(
                f"stopping; requests that run may take {self._drain_s} s more; press Ctrl-C again "
                "to kill"
            )
            self._supervisor.stop()
        elif number == signal.SIGINT or self._clock() > self._stopped_at_s + _TWICE_WITHIN_S:
            self._supervisor.kill()


def _ignore_signals() -> None:
    """Ignore further signals: all processes have ended, and the exit status stays 0."""
    for number in _END_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _service(name: str, *words: str, fds: tuple[int, ...] = (), is_front: bool = False) -> Service:
    argv = (sys.executable, "-m", "vinery_platform.cli", *words)
    beats = name not in _BRIEF | _SILENT
    return Service(name, argv, fds, is_front, beats=beats, environment=_FEW_ARENAS)


def _allow_many_open_files() -> None:
    """Raise the soft limit, which is 1024 or even 256 by default; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
