"""Tests that take too long for each change: engines that end by themselves, many requests at once
and over many models, and the ledger after kills in every order, with clients drawn anew."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import Running, run_platform, runs, until
from tests.own_redis import OwnRedis
from tests.system import test_models_on_little_memory as little_memory
from tests.system.clients import complete
from tests.system.limiting import check_many_at_once
from tests.system.test_faults import kill_all_but_engines
from tests.system.test_usage_after_kills import check_phase
from vinery_serving.engine.supervision import ORPHAN_S

NAMES = [f"chat-{number}" for number in range(10)]
KILLS = (("engine",), ("web",), ("engine", "web"), ("web", "engine"))


def test_engines_end_when_all_other_processes_were_killed(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        left = kill_all_but_engines(platform)

        until(lambda: not any(map(runs, left)), timeout_s=60)


def test_a_node_that_dies_at_each_start_takes_no_model_down(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        (pid,) = platform.pids("engine")
        # Longer than an engine goes on that nothing keeps.
        end_at = time.monotonic() + 1.5 * ORPHAN_S
        while time.monotonic() < end_at:
            for node in platform.processes("node"):
                with suppress(psutil.NoSuchProcess):
                    node.kill()
            time.sleep(0.02)
        assert platform.pids("engine") == [pid]
        assert complete(platform).status_code == 200

        until(lambda: platform.log.read_text().count(f"engine adopted model=tiny-chat pid={pid}\n"))


@pytest.fixture(params=["memory", "redis"])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    if request.param == "memory":
        with run_platform(tmp_path / "home") as running:
            yield running
        return
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the path")
    with OwnRedis(program, tmp_path) as server:
        settings = {"REDIS_URL": server.url, "VINERY_WEB_WORKERS": "2"}
        with run_platform(tmp_path / "home", settings) as running:
            yield running


@pytest.mark.parametrize("are_short", [False, True], ids=["long", "short"])
def test_five_hundred_at_once_use_a_quota_and_no_more(platform: Running, are_short: bool) -> None:
    check_many_at_once(platform, 500, 10_000, are_short=are_short)


def test_none_of_200_requests_over_ten_models_with_memory_for_three_fails(tmp_path: Path) -> None:
    settings = {**little_memory.SETTINGS, "VINERY_MODEL_MEMORY_MB": "3700"}
    with run_platform(tmp_path / "home", settings) as platform:
        little_memory.add_models(platform, NAMES)
        states = {"ready", "asleep"}
        until(lambda: set(little_memory.states(platform).values()) == states, timeout_s=60)

        little_memory.check_requests_at_random(platform, NAMES, num_requests=200, num_fit=3)


@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("kills", KILLS, ids=" and ".join)
def test_the_ledger_has_all_generated_and_read_tokens_after_kills(
    running: Running, kills: tuple[str, ...], seed: int
) -> None:
    check_phase(running, random.Random(seed), kills)
