"""Engines outlive a node that was killed or stopped, and none outlives its platform."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import Running, run_platform, runs, until
from tests.system.ledger import execute, metric

pytestmark = pytest.mark.system

COUNTING = {
    "model": "tiny-chat",
    "messages": [{"role": "user", "content": "Count to 60."}],
    "temperature": 0,
    "max_tokens": 900,
    "ignore_eos": True,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def answer(platform: Running) -> str:
    response = httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {platform.api_key}"},
        json=COUNTING,
        timeout=60,
    )
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


@contextmanager
def requests(platform: Running, number: int) -> Iterator[list[str]]:
    """Requests that run meanwhile. At the end, the list has their answers."""
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(answer(platform))) for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join()


def kill_all_but_engines(platform: Running) -> list[psutil.Process]:
    """Returns the engines, with their own processes."""
    engines = platform.processes("engine")
    left = [each for engine in engines for each in (engine, *engine.children(recursive=True))]
    supervisor, *others = platform.family()
    supervisor.suspend()  # it would start others, and its end would end the node in order
    killed = [each for each in others if each not in left]
    for process in (*killed, supervisor):
        process.kill()
    psutil.wait_procs([supervisor], timeout=30)
    return left


def has_adopted(platform: Running, pid: int) -> bool:
    return f"engine adopted model=tiny-chat pid={pid}\n" in platform.log.read_text()


def test_engines_outlive_all_other_processes_until_the_next_start_and_no_longer(home: Path) -> None:
    with run_platform(home) as platform:
        (pid,) = platform.pids("engine")
        expected = answer(platform)
        kill_all_but_engines(platform)
    with run_platform(home) as platform:
        assert platform.pids("engine") == []  # it belongs to another supervisor's tree
        assert has_adopted(platform, pid)
        assert answer(platform) == expected
        engine = psutil.Process(pid)
        platform.kill("node")
        until(lambda: platform.log.read_text().count("engine adopted") == 2)
        assert engine.is_running()
    until(lambda: not runs(engine))
    with run_platform(home) as platform:
        left = kill_all_but_engines(platform)
        assert all(map(runs, left))
        until(lambda: not any(map(runs, left)), timeout_s=60)


def test_a_stopped_node_is_replaced_beside_running_requests(home: Path) -> None:
    with run_platform(home) as platform:
        (pid,) = platform.pids("engine")
        with requests(platform, 8) as answers:
            until(lambda: metric(platform, "vinery_engine_running") > 0)
            (node,) = platform.pids("node")
            os.kill(node, signal.SIGSTOP)
            until(lambda: has_adopted(platform, pid), timeout_s=90)
        assert len(answers) == 8
        assert len(set(answers)) == 1
        assert platform.pids("engine") == [pid]

        # No signal follows a change of the table by hand.
        execute(platform, "UPDATE serving_servedmodel SET options = '{\"max_running\": 32}'")
        until(lambda: platform.has_replaced("engine", [pid]))
        assert answer(platform) == answers[0]
