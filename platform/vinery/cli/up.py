"""`vinery up`: run all processes on this machine under one supervisor.

It checks the settings, binds the port and locks the home folder; runs `vinery prepare` in a child;
starts node, web and jobs; and prints the URL once a model has generated a token, in a terminal also
the credentials. This process does not import Django.
"""

import argparse
import asyncio
import json
import os
import resource
import shlex
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vinery.cli.ready import Readiness, models_for, readiness
from vinery.config import credentials
from vinery.config.credentials import Credentials
from vinery.config.distribution import REPOSITORY
from vinery.config.env import SettingError
from vinery.config.home import Home
from vinery.process import logs, parent_watch
from vinery.process.child import Service
from vinery.process.heartbeats import RELOAD, hung_after_from_env
from vinery.process.listening import Address, listen, num_workers_from_env, server_for
from vinery.process.memory import max_web_memory_from_env
from vinery.process.orphans import Orphans
from vinery.process.reload import changed_files
from vinery.process.supervisor import Supervisor

_MAX_OPEN_FILES = 65_536
_READINESS_POLL_S = 0.2
_FIRST_PROGRESS_AFTER_S = 3.0
# How long the banner waits for a model's name: a busy machine may need some seconds.
_MODELS_WITHIN_S = 30.0
_TO_GET_A_KEY = "  To get a key: vinery key create --name NAME"
# A little more than the supervisor needs to end in order.
_PARENT_GRACE_S = 12.0

# By default each thread of glibc keeps freed memory for itself.
_FEW_ARENAS = (("MALLOC_ARENA_MAX", "2"),)

# What `--reload` watches, and the folders whose changes need `vinery prepare`.
_SOURCES = ("accounts", "platform", "serving", "templates")
_NEEDS_PREPARE = frozenset({"migrations", "static"})


@dataclass(frozen=True, slots=True)
class Plan:
    home: Home
    address: Address
    num_web_workers: int
    hung_after_s: int = 0
    max_web_memory_mb: int = 0
    is_reloading: bool = False

    def environment(self) -> Mapping[str, str]:
        """The environment of the children: settings as this process has resolved them."""
        return os.environ | {
            "VINERY_HOME": str(self.home.path),
            "VINERY_HOST": self.address.host,
            "VINERY_PORT": str(self.address.port),
        }

    def services(self, fd: int) -> tuple[Service, ...]:
        """All services, in the order of their start."""
        webs = tuple(
            replace(
                _service(f"web-{number}", "web", "--fd", str(fd), fds=(fd,), is_front=True),
                is_replaceable=True,
                max_memory_mb=self.max_web_memory_mb,
            )
            for number in range(1, self.num_web_workers + 1)
        )
        return (_service("node", "node"), *webs, _service("jobs", "jobs", is_front=True))


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        help="end when the process that started this one ends (for make)",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart web and jobs processes when code or templates change (for development)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal. Raises `SettingError` before any process is started."""
    if arguments.reload and REPOSITORY is None:
        raise SettingError("--reload is for a clone of the repository, and this is a package.")
    if arguments.end_with_parent:
        parent_watch.end_with(os.getppid(), grace_s=_PARENT_GRACE_S)
    logs.LogSettings.from_env()  # wrong ones are reported before anything is created
    plan = Plan(
        Home.from_env(),
        Address.from_env(),
        num_workers_from_env(),
        hung_after_from_env(),
        max_web_memory_from_env(),
        arguments.reload,
    )
    plan.home.create()
    with listen(plan.address) as server, plan.home.locked():
        server_for(server)
        logs.begin("supervisor")
        _allow_many_open_files()
        port = server.getsockname()[1]
        plan = replace(plan, address=replace(plan.address, port=port))
        return asyncio.run(_run(plan, server))


async def _run(plan: Plan, server: socket.socket) -> int:
    supervisor = Supervisor(plan.environment(), plan.hung_after_s)
    orphans = Orphans(lambda: supervisor.pids)
    _obey_signals(supervisor)
    orphans.begin()
    is_first_start = credentials.read(plan.home.bootstrap_file) is None
    logs.announce(f"preparing {plan.home.path}")
    status = await supervisor.run_once(_service("prepare", "prepare"))
    if supervisor.is_stopping:
        return 0
    if status != 0:
        return status if status > 0 else 1
    services = plan.services(server.fileno())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_greet_when_ready(plan, supervisor, is_first_start=is_first_start))
        reloading = tasks.create_task(_reload(plan, supervisor, services))
        await supervisor.run(services)
        await orphans.end()
        reloading.cancel()
    _ignore_signals()
    logs.announce("stopped")
    return 0


async def _greet_when_ready(plan: Plan, supervisor: Supervisor, *, is_first_start: bool) -> None:
    clock = asyncio.get_running_loop().time
    began_at = clock()
    report_after_s = _FIRST_PROGRESS_AFTER_S
    base_url = plan.address.base_url
    while (state := await asyncio.to_thread(readiness, base_url)) is not Readiness.READY:
        if supervisor.is_stopping:
            return
        waited_s = clock() - began_at
        if waited_s >= report_after_s:
            logs.announce(f"waiting for {state.value} ({waited_s:.0f} s)")
            report_after_s *= 2
        await asyncio.sleep(_READINESS_POLL_S)
    file = plan.home.bootstrap_file
    known = credentials.read(file)
    if not sys.stdout.isatty():
        _announce_ready(base_url, banner_without_secrets(base_url, file, known))
        return
    model = await _first_model(base_url, known.api_key, supervisor) if known else None
    # The lines with credentials are for the terminal, and for no log.
    logs.show(banner(base_url, file, known, model, is_first_start=is_first_start))
    logs.note_printed(f"ready at {base_url}")


def _announce_ready(base_url: str, lines: str) -> None:
    if logs.is_json():
        logs.announce(f"ready at {base_url}")
    else:
        logs.show(lines)
        logs.note_printed(f"ready at {base_url}")


async def _first_model(base_url: str, api_key: str, supervisor: Supervisor) -> str | None:
    """A model that the key may use; None without one, or if the server does not name it in time."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _MODELS_WITHIN_S
    while (models := await asyncio.to_thread(models_for, api_key, base_url)) is None:
        if supervisor.is_stopping or clock() >= give_up_at:
            return None
        await asyncio.sleep(_READINESS_POLL_S)
    return next(iter(models), None)


def banner(
    base_url: str,
    file: Path,
    known: Credentials | None,
    model: str | None,
    *,
    is_first_start: bool,
) -> str:
    """The lines for a terminal. Only the first start shows the password. `model`: one for the
    key."""
    lines = _addresses(base_url)
    if known is not None:
        if is_first_start:
            lines.append(f"            user {known.admin_user}, password {known.admin_password}")
        lines += [f"  API key   {known.api_key}", f"  saved in  {file}"]
    if known is not None and model is not None:
        lines += ["", f"  {curl_line(base_url, known.api_key, model)}"]
    else:
        lines += ["", _TO_GET_A_KEY]
    return "\n".join([*lines, ""])


def banner_without_secrets(base_url: str, file: Path, known: Credentials | None) -> str:
    """The lines for a log, which more people and programs read than the credentials are for."""
    lines = _addresses(base_url)
    if known is None:
        return "\n".join([*lines, "", _TO_GET_A_KEY, ""])
    show = shlex.join(["cat", str(file)])
    return "\n".join([*lines, f"  saved in  {file}", "", f"  To see the credentials: {show}", ""])


def _addresses(base_url: str) -> list[str]:
    return ["ready", "", f"  URL       {base_url}", f"  admin     {base_url}/admin/"]


def curl_line(base_url: str, api_key: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    words = (
        *("curl", f"{base_url}/v1/chat/completions"),
        *("-H", f"Authorization: Bearer {api_key}"),
        *("-H", "Content-Type: application/json"),
        *("-d", json.dumps(body)),
    )
    return shlex.join(words)


async def _reload(plan: Plan, supervisor: Supervisor, services: Iterable[Service]) -> None:
    """Restart web and jobs processes after each change. The node keeps its models loaded."""
    if not plan.is_reloading:
        return
    front = [service for service in services if service.is_front]
    assert REPOSITORY is not None  # `run` refuses `--reload` without a clone
    async for paths in changed_files([REPOSITORY / name for name in _SOURCES]):
        logs.announce(f"restarting after a change of {min(paths)}")
        if any(_NEEDS_PREPARE & set(path.parts) for path in paths):
            await supervisor.run_once(_service("prepare", "prepare"))
        supervisor.restart(front)


def _obey_signals(supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, _interrupt, supervisor)
    loop.add_signal_handler(signal.SIGTERM, _end, supervisor)
    loop.add_signal_handler(RELOAD, supervisor.reload)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        loop.add_signal_handler(signal.SIGHUP, _end, supervisor)


def _ignore_signals() -> None:
    """Ignore further signals: all processes have ended, and the exit status stays 0."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _interrupt(supervisor: Supervisor) -> None:
    """Ctrl-C. Only a second Ctrl-C kills: `make` forwards SIGTERM, so SIGTERM may come twice."""
    if supervisor.is_stopping:
        supervisor.kill()
    else:
        _end(supervisor)


def _end(supervisor: Supervisor) -> None:
    if not supervisor.is_stopping:
        logs.announce("stopping; press Ctrl-C again to kill")
        supervisor.stop()


def _service(name: str, *words: str, fds: tuple[int, ...] = (), is_front: bool = False) -> Service:
    argv = (sys.executable, "-m", "vinery.cli", *words)
    beats = name != "prepare"
    return Service(name, argv, fds, is_front, beats=beats, environment=_FEW_ARENAS)


def _allow_many_open_files() -> None:
    """Raise the soft limit, which is 1024 or even 256 by default; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
