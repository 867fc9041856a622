"""A PostgreSQL that goes and returns many times in one life of a platform, and processes that start
meanwhile."""

import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from tests.conftest import Running, until
from tests.relay import Relay
from tests.system.clients import command, complete
from tests.system.ledger import is_written
from tests.system.test_database_unavailable import is_unavailable, platform, relay

__all__ = ["platform", "relay"]

NUM_RETURNS = 10


def node_failures(platform: Running) -> int:
    return platform.log.read_text().count("database unavailable, engines left unchanged")


def lose_database(platform: Running, relay: Relay) -> None:
    """Returns when several threads of the node have met the outage."""
    before = node_failures(platform)
    relay.cut()
    until(lambda: is_unavailable(platform))
    until(lambda: node_failures(platform) >= before + 4)


def load(platform: Running, *, is_loaded: bool) -> None:
    command(platform, "model", "load" if is_loaded else "unload", "tiny-chat")
    until(lambda: (complete(platform).status_code == 200) is is_loaded)


def test_changes_of_models_are_followed_after_each_of_ten_returns(
    platform: Running, relay: Relay
) -> None:
    for number in range(NUM_RETURNS):
        is_loaded = number % 2 == 0
        lose_database(platform, relay)
        assert (complete(platform).status_code == 200) is is_loaded
        relay.join()
        until(lambda: not is_unavailable(platform))
        load(platform, is_loaded=not is_loaded)

    until(lambda: complete(platform).status_code == 200)
    # In the log this means that a connection was used again after its failure.
    assert "the connection is closed" not in platform.log.read_text()
    until(lambda: is_written(platform), timeout_s=120)


def test_a_node_that_is_killed_meanwhile_keeps_its_engine_and_starts_another_one(
    platform: Running, relay: Relay
) -> None:
    (engine,) = platform.pids("engine")
    relay.cut()
    try:
        until(lambda: is_unavailable(platform))
        killed = platform.kill("node")
        until(lambda: platform.has_replaced("node", killed))
        until(lambda: f"engine adopted model=tiny-chat pid={engine}\n" in platform.log.read_text())
        assert "models as the database had them" in platform.log.read_text()
        assert complete(platform).status_code == 200

        killed = platform.kill("engine")
        assert complete(platform).status_code == 200
        assert platform.has_replaced("engine", killed)
    finally:
        relay.join()
    (engine,) = platform.pids("engine")
    until(lambda: f'"pid": {engine}' in command(platform, "model", "show", "tiny-chat", "--json"))


def test_a_node_of_another_home_is_refused(platform: Running, tmp_path: Path) -> None:
    other, log = tmp_path / "home", tmp_path / "log"
    shutil.copytree(platform.home, other, ignore=shutil.ignore_patterns("run", "cache", "logs"))
    for name in ("run", "cache", "logs"):
        (other / name).mkdir(mode=0o700)
    environment = {**platform.environment, "VINERY_HOME": str(other)}
    with log.open("wb") as output:
        node = subprocess.Popen(
            (sys.executable, "-m", "vinery_platform.cli", "node"), env=environment, stdout=output
        )
        try:
            refusal = "another node uses this database, so this one waits: vinery node on "
            until(lambda: refusal in log.read_text())
            children = psutil.Process(node.pid).children()
            assert not [each for each in children if "vinery_serving.engine" in each.cmdline()]

        finally:
            node.terminate()
            assert node.wait(60) == 0
