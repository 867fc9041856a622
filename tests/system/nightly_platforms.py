"""Tests that take too long for each change: engines that end by themselves, many requests at once
and over many models, and the ledger after kills in every order, with clients drawn anew."""

import random
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import Running, run_platform, runs, until
from tests.system.clients import complete
from tests.system.test_faults import kill_all_but_engines
from tests.system.test_usage_after_kills import check_phase
from vinery_serving.engine.supervision import ORPHAN_S

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


@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("kills", KILLS, ids=" and ".join)
def test_the_ledger_has_all_generated_and_read_tokens_after_kills(
    running: Running, kills: tuple[str, ...], seed: int
) -> None:
    check_phase(running, random.Random(seed), kills)
