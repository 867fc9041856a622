"""Engines outlive all other processes of their platform, and end with the next one."""

from pathlib import Path

import psutil
import pytest

from tests.conftest import Running, run_platform, runs, until
from tests.system.clients import complete

pytestmark = pytest.mark.system


def answer(platform: Running) -> str:
    response = complete(platform, max_tokens=50, temperature=0)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def kill_all_but_engines(platform: Running) -> list[psutil.Process]:
    """Returns the engines, with their own processes."""
    engines = platform.processes("engine")
    left = [each for engine in engines for each in (engine, *engine.children(recursive=True))]
    supervisor, *others = platform.family()
    supervisor.suspend()  # it would start others, and its end would end the node in order
    for process in (*(each for each in others if each not in left), supervisor):
        process.kill()
    psutil.wait_procs([supervisor], timeout=30)
    assert all(map(runs, left))
    return left


# That they end without a next start: nightly_platforms.py
def test_engines_outlive_all_other_processes_until_the_next_start(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        (pid,) = platform.pids("engine")
        expected = answer(platform)
        kill_all_but_engines(platform)
    with run_platform(tmp_path / "home") as platform:
        assert platform.pids("engine") == []  # it belongs to another supervisor's tree
        assert f"engine adopted model=tiny-chat pid={pid}\n" in platform.log.read_text()
        assert answer(platform) == expected
        engine = psutil.Process(pid)
        platform.kill("node")
        until(lambda: platform.log.read_text().count("engine adopted") == 2)
        assert engine.is_running()
    until(lambda: not runs(engine))
