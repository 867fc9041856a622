"""Two hosts on one PostgreSQL: models are spread, and move from a host that drains or is gone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import stores
from tests.conftest import REPOSITORY, clean_environment, until
from tests.prepared_home import EXACT

pytestmark = pytest.mark.system
WITHIN_S = 240.0
NAMES = ("moon", "mars")


class Node:
    """The node of a host, without web and jobs."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.environment = {**clean_environment(), **environment, "VINERY_HOME": str(home)}
        self.log = home.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "vinery_platform.cli", "node"),
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *words: str) -> str:
        command = (sys.executable, "-m", "vinery_platform.cli", *words)
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{done.stderr}\n{self.log.read_text()[-3000:]}"
        return done.stdout

    def engines(self) -> list[psutil.Process]:
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            return [each for each in children if "text" in each.cmdline()]
        return []

    def kill(self) -> None:
        """As a host loses power: its engines too."""
        for each in [*self.engines(), psutil.Process(self.process.pid)]:  # type: ignore[union-attr]
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        self.process.wait(60)  # type: ignore[union-attr]


@contextmanager
def stopped_at_the_end(node: Node) -> Iterator[Node]:
    try:
        yield node
    finally:
        if node.process is not None and node.process.poll() is None:
            node.process.terminate()
            node.process.wait(120)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Node]]:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL")
    shared = {
        "DATABASE_URL": stores.new_postgres_database(),
        "VINERY_SECRET_KEY": "s" * 50,
        "VINERY_KEY_PEPPER_1": "p" * 50,
        "VINERY_PORT": "0",
    }
    with ExitStack() as stack:
        found = [
            stack.enter_context(stopped_at_the_end(Node(tmp_path / name, shared | named)))
            for name in NAMES
            for named in [{"VINERY_HOST_NAME": name, "VINERY_HOST_LABELS": f"planet={name}"}]
        ]
        for each in found:
            each.run("prepare")
        yield found


def states(node: Node) -> dict[str, tuple[str, str]]:
    """The state and the models of each host, by name."""
    rows = json.loads(node.run("host", "list", "--json"))
    return {each["name"]: (each["state"], each["models"]) for each in rows}


def test_models_spread_over_two_hosts_and_move_from_one_that_drains_or_dies(
    hosts: list[Node],
) -> None:
    moon, mars = hosts
    exact = "plugin=" + json.dumps(EXACT["plugin"])
    moon.run("model", "change", "tiny-chat", "--option", exact)
    folder = str(REPOSITORY / "models" / "tiny-chat")
    moon.run("model", "add", folder, "--name", "b", "--option", exact)

    def become(**wanted: tuple[str, str]) -> Any:
        return until(lambda: states(moon) == wanted, timeout_s=WITHIN_S, pause_s=0.5)

    moon.start()
    become(moon=("active", "b (ready), tiny-chat (ready)"))
    mars.start()
    become(moon=("active", "b (ready), tiny-chat (ready)"), mars=("active", ""))
    assert len(moon.engines()) == 2, "a new host moves nothing"

    moon.run("model", "change", "b", "--replicas", "2")
    become(
        moon=("active", "b (ready), tiny-chat (ready)"),
        mars=("active", "b (ready)"),
    )
    assert (len(moon.engines()), len(mars.engines())) == (2, 1)
    assert "replica 1 on mars" in moon.run("model", "show", "b")

    moon.run("model", "change", "b", "--replicas", "1")
    until(lambda: not mars.engines(), timeout_s=WITHIN_S)
    moon.run("host", "drain", "moon")
    become(moon=("draining", ""), mars=("active", "b (ready), tiny-chat (ready)"))
    until(lambda: not moon.engines(), timeout_s=WITHIN_S)
    assert len(mars.engines()) == 2
    moon.run("host", "resume", "moon")

    mars.kill()
    become(moon=("active", "b (ready), tiny-chat (ready)"), mars=("gone", ""))
    assert len(moon.engines()) == 2
    mars.start()
    become(moon=("active", "b (ready), tiny-chat (ready)"), mars=("active", ""))
    assert mars.engines() == []
    assert "Traceback" not in mars.log.read_text() + moon.log.read_text()
