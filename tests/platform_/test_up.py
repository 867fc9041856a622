"""Decisions and output of `vinery up`, and changes that a reload notices."""

import argparse
import asyncio
import errno
import os
import re
import shlex
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from tests.fakes.clock import FakeClock
from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.cli import up
from vinery_platform.cli.ready import command_words, greeting
from vinery_platform.cli.up import modification_times
from vinery_platform.config import env, secret_files
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Credentials, Home, RunningServer, default_path
from vinery_platform.processes.listening import Address, listen
from vinery_platform.processes.supervisor import Service, Supervisor
from vinery_serving.processes import confine
from vinery_serving.processes.confine import Part

PLAN = up.Plan(Home(Path("/srv/vinery")), Address("127.0.0.1", 8000), num_web_workers=3)


class Watched(Supervisor):
    def __init__(self) -> None:
        super().__init__({})
        self.is_killing = False

    def kill(self) -> None:
        self.is_killing = True
        super().kill()


@table(
    "value, held, refusal",
    [
        ("auto", frozenset(), None),
        ("required", confine.ESSENTIAL, None),
        ("required", confine.ESSENTIAL - {Part.CALLS}, "this system lacks: seccomp"),
    ],
)
def test_a_system_that_cannot_confine_is_refused_on_request(
    monkeypatch: pytest.MonkeyPatch, value: str, held: frozenset[Part], refusal: str | None
) -> None:
    monkeypatch.setenv("VINERY_CONFINE", value)
    monkeypatch.setattr(confine, "available", lambda: held)
    with pytest.raises(SettingError, match=refusal) if refusal else nullcontext():
        up._check_confinement()


@pytest.mark.parametrize(
    ("number", "later_s", "is_killing"),
    [
        (signal.SIGINT, 0.0, True),
        # `kill` of a process group reaches the supervisor twice: make forwards the signal.
        (signal.SIGTERM, 0.0, False),
        (signal.SIGTERM, 2.0, True),
    ],
)
def test_the_first_signal_stops_and_a_second_one_kills(
    number: signal.Signals, later_s: float, is_killing: bool
) -> None:
    supervisor, clock = Watched(), FakeClock()
    signals = up.EndSignals(supervisor, drain_s=30, clock=clock)
    signals.take(number)
    assert (supervisor.is_stopping, supervisor.is_killing) == (True, False)

    clock.pass_s(later_s)
    signals.take(number)
    assert supervisor.is_killing is is_killing


def test_only_web_processes_get_the_socket_and_children_get_the_resolved_settings() -> None:
    services = PLAN.services(fd=7)
    names = ["warm", "node", "web-1", "web-2", "web-3", "jobs"]
    assert [service.name for service in services] == names
    assert {service.name for service in services if service.fds} == {"web-1", "web-2", "web-3"}
    assert {service.fds for service in services} == {(), (7,)}
    # At the end, web processes may finish their answers. They need the node's engines.
    assert [service.name for service in services if not service.is_front] == ["warm", "node"]

    of_ray = replace(PLAN, has_ray=True).services(fd=7)[-2:]
    assert [(each.name, each.beats) for each in of_ray] == [("agent", True), ("ray-node", False)]

    environment = PLAN.environment()
    assert environment["VINERY_HOME"] == "/srv/vinery"
    assert (environment["VINERY_HOST"], environment["VINERY_PORT"]) == ("127.0.0.1", "8000")


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the files have been read. They are read often."""
    has_looked = threading.Event()

    def look(folders: Sequence[Path]) -> dict[Path, int]:
        times = modification_times(folders)
        has_looked.set()
        return times

    monkeypatch.setattr(up, "_RELOAD_POLL_S", 0.01)
    monkeypatch.setattr(up, "modification_times", look)
    return has_looked


class RecordingSupervisor:
    def __init__(self) -> None:
        self.calls: list[object] = []
        self.has_restarted = asyncio.Event()

    async def run_once(self, service: Service) -> int:
        self.calls.append(service.name)
        return 0

    def restart(self, services: list[Service]) -> None:
        self.calls.append([service.name for service in services])
        if "web-1" in self.calls[-1]:  # type: ignore[operator]
            self.has_restarted.set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("templates/base.html", []), ("accounts/vinery_accounts/migrations/0002_new.py", ["prepare"])],
)
async def test_a_change_restarts_web_and_jobs_and_not_the_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looked: threading.Event,
    name: str,
    expected: list[object],
) -> None:
    monkeypatch.setattr(up, "_SOURCES", (tmp_path,))
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    plan = up.Plan(Home(tmp_path / "home"), Address("127.0.0.1", 8000), 1, is_reloading=True)
    supervisor = RecordingSupervisor()
    task = asyncio.create_task(up._reload(plan, supervisor, plan.services(3)))  # type: ignore[arg-type]
    assert await asyncio.to_thread(looked.wait, 60)

    file.write_text("changed")
    await asyncio.wait_for(supervisor.has_restarted.wait(), 30)

    task.cancel()
    assert supervisor.calls == [["warm"], *expected, ["web-1", "jobs"]]


async def test_preparing_is_tried_again_though_its_process_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "_PREPARE_AGAIN_S", 0)
    results = [OSError(errno.EAGAIN, "no processes"), up.PREPARED_LATER, 0]
    supervisor = Mock(is_stopping=False, run_once=AsyncMock(side_effect=results))
    await up._prepare_later(supervisor)
    assert supervisor.run_once.await_count == len(results)


def test_a_home_that_gets_an_address_for_hosts_has_its_key_before_any_process_begins(
    platform_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(plan: up.Plan, _: socket.socket) -> int:
        keys.append(secret_files.host_key(plan.home))
        return 0

    keys: list[str] = []
    monkeypatch.setattr(up, "_run", run)
    monkeypatch.setattr(up, "server_for", Mock())
    monkeypatch.setattr(up.logs, "begin", Mock())
    monkeypatch.setenv("VINERY_PORT", "0")
    assert secret_files.host_key(platform_home) == ""
    monkeypatch.setenv("VINERY_HOST_ADDRESS", "127.0.0.2:8200")
    assert up.run_up(argparse.Namespace(reload=False, end_with_parent=False)) == 0
    assert keys == [secret_files.host_key(platform_home)]
    assert keys != [""]


URL = "http://127.0.0.1:8123"
KNOWN = Credentials(URL, "vny_live_k", "admin", "pa55word")
SERVER, HOME = RunningServer(77, URL, 0.0, "1.0"), Home(Path("/srv/vinery"))


def test_a_greeting_has_addresses_and_credentials_and_a_log_has_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VINERY_HOME", "/srv/vinery")
    shown = greeting(SERVER, HOME, KNOWN, shows_key=True, shows_password=True)
    rows = dict(re.findall(r"^  (\w+(?: \w+)?) {2,}(.+)$", shown, flags=re.MULTILINE))
    assert rows["URL"] == URL
    assert rows["console"] == f"{URL}/console/"
    assert rows["API"].split()[0] == f"{URL}/v1"
    assert (rows["user"], rows["password"]) == ("admin", "pa55word")
    assert rows["API key"] == "vny_live_k"
    assert rows["saved in"].split()[0] == "/srv/vinery/bootstrap.json"
    assert rows["stop"].endswith("kill 77")

    log = greeting(SERVER, HOME, KNOWN, shows_key=False, shows_password=False)
    assert "pa55word" not in log and "vny_live_k" not in log
    assert "/srv/vinery/bootstrap.json" in log

    text = greeting(SERVER, HOME, None, shows_key=True, shows_password=True)
    assert "VINERY_HOME=/srv/vinery" in text and "vinery key create --name NAME" in text

    monkeypatch.setenv("VINERY_PUBLIC_URL", "https://vinery.example")
    proxied = greeting(SERVER, HOME, KNOWN, shows_key=False, shows_password=False)
    assert "console    https://vinery.example/console/" in proxied
    assert f"local      {URL}" in proxied


@table(
    "home, is_from_file, needs_variable",
    [(default_path(), False, False), (Path("/a b"), False, True), (Path("/a b"), True, False)],
)
def test_commands_name_the_home_if_other_shells_do_not_find_it(
    monkeypatch: pytest.MonkeyPatch, home: Path, is_from_file: bool, needs_variable: bool
) -> None:
    monkeypatch.setenv("VINERY_HOME", str(home))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(env, "_origins", {})
    if is_from_file:
        env.note_origin("VINERY_HOME", Path("/home/alice/.config/vinery/vinery.toml"))

    words = shlex.split(command_words())

    assert words[-1].endswith("vinery")
    assert words[:-1] == (["VINERY_HOME=/a b"] if needs_variable else [])


def refusal(home: Path, **settings: str) -> str:
    environment = {"VINERY_PORT": "0", "VINERY_HOME": str(home)} | settings
    return scripts.refusal("up", environment=environment)


def test_a_port_in_use_and_a_home_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])

        line = refusal(tmp_path / "home", VINERY_PORT=port)

    assert f"Port {port} on 127.0.0.1 is in use" in line
    assert "VINERY_PORT" in line
    assert not (tmp_path / "home").exists()

    (tmp_path / "file").write_text("a file, which stops root as well")
    assert f"VINERY_HOME={tmp_path / 'file'} cannot be written" in refusal(tmp_path / "file")


def test_a_second_start_reports_where_the_first_one_is_before_its_port(platform_home: Home) -> None:
    with listen(Address("127.0.0.1", 0)) as used, platform_home.locked():
        port = used.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        RunningServer.write(platform_home, url, "1.0")
        for asked in (str(port), "0"):
            environment = {"VINERY_PORT": asked, "VINERY_HOME": str(platform_home.path)}

            result = scripts.vinery("up", environment=environment)

            assert result.returncode == 0
            assert "already runs with the home" in result.stdout
            assert f"(process {os.getpid()})" in result.stdout
            assert url in result.stdout

        line = refusal(platform_home.path, VINERY_PORT="1")
        assert "already runs" in line
        assert url in line
        assert str(os.getpid()) in line


def test_a_home_in_use_is_refused_and_notes_of_a_dead_server_are_not_read(
    platform_home: Home,
) -> None:
    with platform_home.locked():
        line = refusal(platform_home.path)
    assert str(platform_home.path) in line
    assert "is in use by process" in line

    RunningServer.write(platform_home, "http://127.0.0.1:18500", "1.0")
    assert RunningServer.read(platform_home) is None


def test_open_access_to_the_network_is_refused(tmp_path: Path) -> None:
    settings = {"VINERY_AUTH": "off", "VINERY_HOST": "0.0.0.0", "VINERY_PORT": "0"}

    result = scripts.vinery("up", environment={"VINERY_HOME": str(tmp_path / "home")} | settings)
    assert result.returncode == 2
    assert result.stderr.startswith("vinery: VINERY_AUTH=off would serve all clients")
    assert result.stderr.count("\n") == 1


@table(
    "is_old, line",
    [
        (True, "Python 3.11 or newer is needed, this is Python 3.8.1."),
        (False, "Install Python 3.11 or newer"),
    ],
)
def test_make_up_refuses_an_old_or_no_python(tmp_path: Path, is_old: bool, line: str) -> None:
    interpreter = tmp_path / "python"
    interpreter.unlink(missing_ok=True)
    if is_old:
        interpreter.write_text("#!/bin/sh\necho Python 3.8.1; exit 1\n")
        interpreter.chmod(0o755)

    result = scripts.make("up", f"PYTHON={interpreter}", f"VENV={tmp_path / 'venv'}")

    [own_line] = [text for text in result.stderr.splitlines() if not text.startswith("make")]
    assert result.returncode == 2
    assert line in own_line
    assert not (tmp_path / "venv").exists()


def test_new_processes_read_the_configuration_file_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("VINERY_LOG_LEVEL", "VINERY_DRAIN_S"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setattr(env, "_origins", {})
    env.note_origin("VINERY_DRAIN_S", tmp_path / "vinery.toml")

    environment = up.Plan(Home(tmp_path), Address("127.0.0.1", 8000), 1).environment()

    assert environment["VINERY_LOG_LEVEL"] == "7"
    assert "VINERY_DRAIN_S" not in environment
