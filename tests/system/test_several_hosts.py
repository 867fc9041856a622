"""Two hosts on one PostgreSQL: each answers for all models, which move from a host that drains or
is gone."""

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

from tests import stores
from tests.conftest import REPOSITORY, clean_environment, until

pytestmark = pytest.mark.system
WITHIN_S = 240.0
ADDRESSES = {"moon": "127.0.0.1", "mars": "127.0.0.2"}
MAX_ANSWERS = 10_000


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
        command = (sys.executable, "-m", "vinery_platform.cli", *words)
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"{done.stderr}\n{self.log.read_text()[-3000:]}"
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        return []

    def engines(self) -> list[psutil.Process]:
        return [each for each in self.processes() if runs(each, "vinery_serving.engine")]

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


def runs(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.Error:  # it ended while we looked
        return False


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


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Installed]]:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    shared = {
        "DATABASE_URL": stores.new_postgres_database(),
        "REDIS_URL": stores.new_redis_database(),
        "VINERY_SECRET_KEY": "s" * 50,
        "VINERY_KEY_PEPPER_1": "p" * 50,
    }
    with ExitStack() as stack:
        found = []
        for name, address in ADDRESSES.items():
            port = free_port(address)
            own = {
                "VINERY_HOST_NAME": name,
                "VINERY_HOST": address,
                "VINERY_PORT": str(port),
                "VINERY_HOST_ADDRESS": f"{address}:{free_port(address)}",
                "URL": f"http://{address}:{port}",
            }
            host = Installed(tmp_path / name, shared | own)
            found.append(stack.enter_context(stopped_at_the_end(host)))
        yield found


def states(host: Installed) -> dict[str, tuple[str, str]]:
    """The state and the models of each host, by name."""
    rows = json.loads(host.run("host", "list", "--json"))
    return {each["name"]: (each["state"], each["models"]) for each in rows}


def test_models_answer_from_two_hosts_and_move_from_one_that_drains_or_dies(
    hosts: list[Installed],
) -> None:
    moon, mars = hosts
    both = "b (ready), tiny-chat (ready)"

    def become(**wanted: tuple[str, str]) -> None:
        until(lambda: states(moon) == wanted, timeout_s=WITHIN_S, pause_s=0.5)

    moon.start()
    until((moon.home / "bootstrap.json").exists, timeout_s=WITHIN_S)
    moon.run("model", "add", str(REPOSITORY / "models" / "tiny-chat"), "--name", "b")
    become(moon=("active", both))
    key = json.loads((moon.home / "bootstrap.json").read_text())["api_key"]
    mars.start()
    become(moon=("active", both), mars=("active", ""))

    moon.run("model", "change", "b", "--replicas", "2")
    become(moon=("active", both), mars=("active", "b (ready)"))
    assert "replica 1 on mars" in moon.run("model", "show", "b")
    until(lambda: mars.ask("tiny-chat", key) == 200, timeout_s=WITHIN_S)  # over the relay of moon

    moon.run("model", "change", "tiny-chat", "--idle-s", "1")
    asleep = ("active", "b (ready), tiny-chat (asleep)")
    become(moon=asleep, mars=("active", "b (ready)"))
    assert mars.ask("tiny-chat", key) == 200, "moon's node wakes it for a request of mars"
    become(moon=asleep, mars=("active", "b (ready)"))
    moon.run("model", "change", "tiny-chat", "--idle-s", "0")
    moon.run("model", "load", "tiny-chat")
    become(moon=("active", both), mars=("active", "b (ready)"))

    moon.run("model", "change", "b", "--replicas", "1")
    until(lambda: not mars.engines(), timeout_s=WITHIN_S)
    moon.run("host", "drain", "moon")
    answers = []
    while states(moon) != {"moon": ("draining", ""), "mars": ("active", both)} or moon.engines():
        answers += [host.ask(model, key) for model in ("b", "tiny-chat") for host in hosts]
        assert len(answers) < MAX_ANSWERS
    assert set(answers) == {200}, "no request fails while models move"
    assert len(mars.engines()) == 2
    moon.run("host", "resume", "moon")

    mars.kill()
    become(moon=("active", both), mars=("gone", ""))
    assert [moon.ask(model, key) for model in ("b", "tiny-chat")] == [200, 200]
    mars.start()
    become(moon=("active", both), mars=("active", ""))
    until(lambda: mars.ask("b", key) == 200, timeout_s=WITHIN_S)
    assert mars.engines() == []
