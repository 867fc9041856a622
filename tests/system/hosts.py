"""Hosts that share a database of PostgreSQL and one of Redis, each the whole platform at an address
of its own on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests import forked_commands, stores
from tests.conftest import clean_environment, until

WITHIN_S = 240.0
ADDRESSES = {"moon": "127.0.0.1", "mars": "127.0.0.2"}


class Installed:
    """The whole platform of one host."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = {**clean_environment(), **environment, "VINERY_HOME": str(home)}
        self.log = home.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "vinery_platform.cli", "up"),
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *words: str) -> str:
        done = forked_commands.run(*words, environment=self.environment)
        assert done.returncode == 0, f"{done.stderr}\n{self.log.read_text()[-3000:]}"
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """The supervisor, and then all others."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        return []

    def engines(self) -> list[psutil.Process]:
        return [each for each in self.processes() if "vinery_serving.engine" in _words(each)]

    def relay(self) -> psutil.Process:
        (found,) = [each for each in self.processes() if "relay" in _words(each)]
        return found

    def kill(self) -> None:
        """As a host loses power."""
        for each in self.processes():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        self.process.wait(60)  # type: ignore[union-attr]

    def ask(self, model: str, key: str) -> int:
        """Return the status of a short answer; 0: the host does not answer."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.environment['URL']}/v1/chat/completions"
        try:
            return httpx.post(url, json=body, headers=headers, timeout=120).status_code
        except httpx.TransportError:
            return 0


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended while we looked
        return []


@contextmanager
def stopped_at_the_end(host: Installed) -> Iterator[Installed]:
    try:
        yield host
    finally:
        if host.process is not None and host.process.poll() is None:
            host.process.terminate()
            host.process.wait(120)


def free_port(address: str) -> int:
    with socket.socket() as listener:
        listener.bind((address, 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Installed, Installed]]:
    """Moon and mars, with homes in this folder. Neither is started."""
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    shared = {
        "DATABASE_URL": stores.new_postgres_database(),
        "REDIS_URL": stores.new_redis_database(),
        "VINERY_SECRET_KEY": "s" * 50,
        "VINERY_KEY_PEPPER_1": "p" * 50,
    }
    with ExitStack() as stack:
        hosts = []
        for name, address in ADDRESSES.items():
            port = free_port(address)
            own = {
                "VINERY_HOST_NAME": name,
                "VINERY_HOST": address,
                "VINERY_PORT": str(port),
                "VINERY_HOST_ADDRESS": f"{address}:{free_port(address)}",
                "URL": f"http://{address}:{port}",
            }
            host = Installed(folder / name, shared | own)
            hosts.append(stack.enter_context(stopped_at_the_end(host)))
        moon, mars = hosts
        yield moon, mars


def states(host: Installed) -> dict[str, tuple[str, str]]:
    """The state and the models of each host, by name."""
    rows = json.loads(host.run("host", "list", "--json"))
    return {each["name"]: (each["state"], each["models"]) for each in rows}


def become(host: Installed, **wanted: tuple[str, str]) -> None:
    """Wait until `states` are these."""
    until(lambda: states(host) == wanted, timeout_s=WITHIN_S, pause_s=0.5)
