"""The decisions of `vinery up` before and while the supervisor works."""

import re
import signal
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.platform_ import scripts
from vinery.cli import commands, up
from vinery.config.distribution import REPOSITORY
from vinery.config.home import Home
from vinery.process.listening import Address
from vinery.process.supervisor import Supervisor

PLAN = up.Plan(Home(Path("/srv/vinery")), Address("127.0.0.1", 8000), num_web_workers=3)


class Watched(Supervisor):
    """A supervisor that records a call of `kill`."""

    def __init__(self) -> None:
        super().__init__({})
        self.is_killing = False

    def kill(self) -> None:
        self.is_killing = True
        super().kill()


@pytest.fixture
def supervisor() -> Watched:
    return Watched()


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
    supervisor: Watched, number: signal.Signals, later_s: float, is_killing: bool
) -> None:
    clock = FakeClock()
    signals = up.EndSignals(supervisor, drain_s=30, clock=clock)
    signals.take(number)
    assert (supervisor.is_stopping, supervisor.is_killing) == (True, False)

    clock.pass_s(later_s)
    signals.take(number)
    assert supervisor.is_killing is is_killing


def test_only_web_processes_get_the_socket_and_the_node_ends_last() -> None:
    services = PLAN.services(fd=7)

    assert [service.name for service in services] == ["node", "web-1", "web-2", "web-3", "jobs"]
    assert {service.name for service in services if service.fds} == {"web-1", "web-2", "web-3"}
    assert {service.fds for service in services} == {(), (7,)}
    # At the end, web processes may finish their answers. They need the node's engines.
    assert [service.name for service in services if not service.is_front] == ["node"]


def test_children_get_the_resolved_settings() -> None:
    environment = PLAN.environment()

    assert environment["VINERY_HOME"] == "/srv/vinery"
    assert (environment["VINERY_HOST"], environment["VINERY_PORT"]) == ("127.0.0.1", "8000")


def test_help_names_every_setting() -> None:
    source = "\n".join(
        file.read_text() for file in (REPOSITORY / "platform" / "vinery").rglob("*.py")
    )
    read = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', source))

    assert len(read) >= 14
    assert {name for name in read if name not in commands.parser().format_help()} == set()


_SIGNAL_AFTER_THE_END = """
import asyncio, os, signal
from vinery.cli import up

async def main():
    up._ignore_signals()

asyncio.run(main())
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_after_the_end_keeps_the_exit_status() -> None:
    assert scripts.run_python("-c", _SIGNAL_AFTER_THE_END).returncode == 0
