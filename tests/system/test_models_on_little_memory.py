"""Ten models with memory for three: they wake for requests, and make room for each other."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.system.commands import vinery
from tests.system.ledger import execute, wait_until_seen

pytestmark = pytest.mark.system

# Each model may fill a KV cache of 1 GB, so three of them fit, whatever their processes take.
SETTINGS = {"VINERY_MODEL_MEMORY_MB": "3700", "VINERY_MIN_AWAKE_S": "0"}
NAMES = [f"chat-{number}" for number in range(10)]
NUM_FIT = 3
NUM_REQUESTS = 200


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("memory") / "home"
    with run_platform(home, SETTINGS) as platform:
        for name in NAMES:
            vinery(
                platform,
                *("model", "add", "tiny-chat", "--name", name, "--option", "cache_size_gb=1"),
            )
        vinery(platform, "model", "remove", "tiny-chat")
        until(lambda: set(states(platform).values()) == {"ready", "asleep"}, timeout_s=60)
        yield platform


def states(platform: Running) -> dict[str, str]:
    query = (
        "SELECT name, state FROM serving_servedmodel"
        " JOIN serving_enginestatus ON model_id = serving_servedmodel.id"
    )
    return dict(execute(platform, query))


def awake(platform: Running) -> set[str]:
    return {name for name, state in states(platform).items() if state == "ready"}


def ask(platform: Running, name: str) -> int:
    """Returns the status of a short chat."""
    response = httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {platform.api_key}"},
        json={
            "model": name,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 12,
            "temperature": 0,
        },
        timeout=90,
    )
    if response.status_code == 200:
        assert "Paris" in response.json()["choices"][0]["message"]["content"]
    return response.status_code


def ask_all(platform: Running, names: Sequence[str], num_clients: int) -> list[int]:
    with ThreadPoolExecutor(num_clients) as clients:
        return list(clients.map(lambda name: ask(platform, name), names))


@contextmanager
def seen_waits(platform: Running) -> Iterator[set[str]]:
    """The models for which requests were shown to wait meanwhile."""
    seen, is_over = set[str](), threading.Event()
    query = (
        "SELECT name FROM serving_servedmodel"
        " JOIN serving_enginestatus ON model_id = serving_servedmodel.id"
        " WHERE num_waiting_to_load > 0 AND waiting_since IS NOT NULL"
    )

    def look() -> None:
        while not is_over.wait(0.2):
            seen.update(name for (name,) in execute(platform, query))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def went_to_sleep(platform: Running) -> list[str]:
    """The models that went to sleep so far, in this order."""
    return re.findall(r"model goes to sleep model=(\S+)", platform.log.read_text())


def most_engines(platform: Running) -> int:
    """The most engines of these models at any moment, by what they have logged."""
    events = re.findall(
        r"^(\S+) INFO engine-chat-\d \S+ (loading|stopped)", platform.log.read_text(), re.MULTILINE
    )
    steps = [1 if event == "loading" else -1 for _, event in sorted(events)]
    return max(accumulate(steps))


def test_as_many_models_are_loaded_at_the_start_as_fit(platform: Running) -> None:
    assert len(awake(platform)) == NUM_FIT

    listed = httpx.get(
        f"{platform.base_url}/v1/models", headers={"Authorization": f"Bearer {platform.api_key}"}
    ).json()["data"]
    assert {each["id"] for each in listed} == set(NAMES), "those that are asleep can answer"
    assert {each["state"] for each in listed} == {"loaded", "asleep"}


def test_the_least_recently_used_model_makes_room(platform: Running) -> None:
    used = sorted(awake(platform), reverse=True)
    for name in used:
        assert ask(platform, name) == 200
    num_before = len(went_to_sleep(platform))
    for name in sorted(set(NAMES) - set(used))[:NUM_FIT]:
        assert ask(platform, name) == 200

    assert went_to_sleep(platform)[num_before:] == used


def test_none_of_200_requests_over_ten_models_fails(platform: Running) -> None:
    names = random.Random(7).choices(NAMES, k=NUM_REQUESTS)
    with seen_waits(platform) as waits:
        statuses = ask_all(platform, names, num_clients=60)

    assert statuses == [200] * NUM_REQUESTS
    assert most_engines(platform) == NUM_FIT
    assert len(waits) >= 5
    until(lambda: not any_waits(platform))


def any_waits(platform: Running) -> int:
    query = "SELECT SUM(num_waiting_to_load) FROM serving_enginestatus"
    return int(execute(platform, query)[0][0])


def test_a_node_and_engines_that_are_killed_fail_no_request(platform: Running) -> None:
    names = random.Random(8).choices(NAMES, k=30)
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask_all, platform, names, 12)
        for role in ("node", "engine"):
            until(lambda role=role: platform.pids(role))
            for pid in platform.pids(role)[:1]:
                os.kill(pid, signal.SIGKILL)
            time.sleep(1.5)
        assert asked.result() == [200] * 30
    assert len(platform.pids("engine")) <= NUM_FIT


def test_a_pinned_model_stays_and_an_idle_one_sleeps(platform: Running) -> None:
    pinned, idle = NAMES[0], NAMES[1]
    vinery(platform, "model", "change", pinned, "--pinned")
    until(lambda: pinned in awake(platform), timeout_s=60)
    assert ask(platform, idle) == 200
    vinery(platform, "model", "change", idle, "--idle-s", "1")
    until(lambda: states(platform)[idle] == "asleep")
    assert ask_all(platform, NAMES, 4) == [200] * 10

    assert pinned in awake(platform)
    assert pinned not in went_to_sleep(platform)[-7:]
    vinery(platform, "model", "change", pinned, "--no-pinned")
    wait_until_seen(platform)
