"""Processes that stand still are replaced, and their neighbours answer meanwhile."""

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import Running, clean_environment, until
from tests.prepared_home import EXACT
from tests.system.clients import platform_with, text_of
from tests.system.ledger import execute, metric, outcomes

LOOPING = Path(__file__).with_name("looping")
PATH = os.pathsep.join((str(LOOPING), clean_environment()["PYTHONPATH"]))
# Two web processes, and all processes loop when they are asked to. A loop takes a core from all
# others until it is noticed.
answer = partial(text_of, ignore_eos=True)
platform = platform_with(VINERY_WEB_WORKERS="2", VINERY_HUNG_AFTER_S="2", PYTHONPATH=PATH)


def stop(process: psutil.Process) -> psutil.Process:
    """The signal takes a moment, in which a web process may still accept a connection."""
    process.suspend()
    until(lambda: is_stopped(process))
    return process


def is_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def test_web_processes_share_port_and_ledger_and_stopped_ones_are_replaced(
    platform: Running,
) -> None:
    assert len({answer(platform) for _ in range(10)}) == 1
    assert len(platform.pids("web")) == 2
    until(lambda: outcomes(platform) == {"ok": 10})

    stopped = stop(platform.processes("web")[0])

    num_answers = 0
    while is_stopped(stopped) and num_answers < 20:
        assert httpx.get(f"{platform.base_url}/livez", timeout=60).status_code == 200
        num_answers += 1

    assert num_answers > 1
    until(lambda: not psutil.pid_exists(stopped.pid))
    until(lambda: len(platform.pids("web")) == 2)
    assert answer(platform)


def test_a_stopped_node_is_replaced_beside_running_requests(platform: Running) -> None:
    (pid,) = platform.pids("engine")
    before = len(lines_of_hangs(platform))
    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(answer, platform, max_tokens=600) for _ in range(4)]
        until(lambda: metric(platform, "vllm:num_requests_running") > 0)
        stop(platform.processes("node")[0])
        until(lambda: f"engine adopted model=tiny-chat pid={pid}\n" in platform.log.read_text())
        # The texts need not be equal: rounding depends on the batch.
        assert all(each.result() for each in asked)

    assert platform.pids("engine") == [pid]
    until(lambda: len(lines_of_hangs(platform)) > before)
    assert re.search("node.*its stacks.*node/reconciler.py", lines_of_hangs(platform)[before])
    # No signal follows a change of the table by hand.
    options = json.dumps(EXACT | {"max_running": 32})
    execute(platform, f"UPDATE serving_servedmodel SET options = '{options}'")
    until(lambda: platform.has_replaced("engine", [pid]))
    assert answer(platform)


# An engine in one: tests/engine/test_engine_process.py
@pytest.mark.parametrize("role", ["web", "jobs", "node"])
def test_a_process_in_an_endless_loop_is_replaced(platform: Running, role: str) -> None:
    num_processes = len(platform.pids(role))
    looping = platform.pids(role)[0]
    before = len(lines_of_hangs(platform))
    os.kill(looping, signal.SIGRTMIN)
    until((platform.home / f"looping-{looping}").exists)

    if role == "web":  # the other one takes the connections
        assert httpx.get(f"{platform.base_url}/livez", timeout=60).status_code == 200
    until(lambda: not psutil.pid_exists(looping))
    until(lambda: len(platform.pids(role)) == num_processes)
    until(lambda: len(lines_of_hangs(platform)) > before)
    line = lines_of_hangs(platform)[before]
    assert "without a sign of life" in line
    assert re.search(r"stacks: [^<]*sitecustomize\.py:\d+ loop_for_ever", line)
    assert answer(platform)


def lines_of_hangs(platform: Running) -> list[str]:
    return [
        line
        for line in platform.log.read_text().splitlines()
        if "stood still" in line and "its stacks" in line
    ]


def test_connections_wait_for_the_next_process_when_all_are_stopped(platform: Running) -> None:
    for process in platform.processes("web"):
        stop(process)

    assert httpx.get(f"{platform.base_url}/livez", timeout=60).status_code == 200
