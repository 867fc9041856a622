"""Five models with memory for two: they wake for requests, and make room for each other."""

import os
import random
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate

import pytest

from tests.conftest import Running, run_platform, until
from tests.system.clients import chat, command, http_of, vinery
from tests.system.ledger import execute, wait_until_seen

# Each model may fill a KV cache of 1 GB, so two models fit, whatever their processes take.
SETTINGS = {"VINERY_MODEL_MEMORY_MB": "2600", "VINERY_MIN_AWAKE_S": "0"}
NAMES = [f"chat-{number}" for number in range(5)]
NUM_FIT = 2
ENGINES = "serving_servedmodel JOIN serving_enginestatus ON model_id = serving_servedmodel.id"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("memory") / "home"
    with run_platform(home, SETTINGS) as platform:
        add_models(platform, NAMES)
        until(lambda: set(states(platform).values()) == {"ready", "asleep"}, timeout_s=60)
        yield platform


def add_models(platform: Running, names: Sequence[str]) -> None:
    """Instead of the first one."""
    for name in names:
        option = ("--option", "cache_size_gb=1")
        command(platform, "model", "add", "tiny-chat", "--name", name, *option)
    vinery(platform, "model", "remove", "tiny-chat")


def states(platform: Running) -> dict[str, str]:
    return dict(execute(platform, f"SELECT name, state FROM {ENGINES}"))


def awake(platform: Running) -> set[str]:
    return {name for name, state in states(platform).items() if state == "ready"}


def listed(platform: Running) -> dict[str, str]:
    """The models that clients find, with their states."""
    with http_of(platform) as client:
        return {each["id"]: each["state"] for each in client.get("/v1/models").json()["data"]}


def ask(platform: Running, name: str) -> int:
    """Returns the status of a short chat."""
    question = "What is the capital of France?"
    response = chat(platform, question, model=name, max_tokens=12, temperature=0)
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
    waiting = "num_waiting_to_load > 0 AND waiting_since IS NOT NULL"
    query = f"SELECT name FROM {ENGINES} WHERE {waiting}"

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


def test_as_many_models_as_fit_load_and_the_least_used_makes_room(platform: Running) -> None:
    assert len(awake(platform)) == NUM_FIT

    # Those that are asleep can answer. Web processes hear a little later of what the node has done.
    both = {"loaded", "asleep"}
    until(lambda: (now := listed(platform)).keys() == set(NAMES) and set(now.values()) == both)

    used = sorted(awake(platform), reverse=True)
    for name in used:
        assert ask(platform, name) == 200
    num_before = len(went_to_sleep(platform))
    for name in sorted(set(NAMES) - set(used))[:NUM_FIT]:
        assert ask(platform, name) == 200

    assert went_to_sleep(platform)[num_before:] == used


def test_no_request_fails_for_room_or_killed_nodes_and_engines(platform: Running) -> None:
    check_requests_at_random(platform, NAMES, num_requests=40, num_fit=NUM_FIT)

    names = random.Random(8).choices(NAMES, k=12)
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask_all, platform, names, 12)
        killed = platform.kill("node")
        until(lambda: platform.has_replaced("node", killed))
        os.kill(until(lambda: platform.pids("engine"))[0], signal.SIGKILL)
        assert asked.result() == [200] * 12
    with_the_spare_one = NUM_FIT + 1
    until(lambda: len(platform.pids("engine")) <= with_the_spare_one)


def check_requests_at_random(
    platform: Running, names: Sequence[str], *, num_requests: int, num_fit: int
) -> None:
    drawn = random.Random(7).choices(names, k=num_requests)
    with seen_waits(platform) as waits:
        statuses = ask_all(platform, drawn, num_clients=min(60, num_requests))

    assert statuses == [200] * num_requests
    assert most_engines(platform) == num_fit
    assert len(waits) >= len(names) // 2
    num_waiting = "SELECT SUM(num_waiting_to_load) FROM serving_enginestatus"
    until(lambda: execute(platform, num_waiting) == [(0,)])


def test_a_pinned_model_stays_and_an_idle_one_sleeps(platform: Running) -> None:
    pinned, idle = NAMES[0], NAMES[1]
    vinery(platform, "model", "change", pinned, "--pinned")
    until(lambda: pinned in awake(platform), timeout_s=60)
    assert ask(platform, idle) == 200
    vinery(platform, "model", "change", idle, "--idle-s", "1")
    until(lambda: states(platform)[idle] == "asleep")
    num_before = len(went_to_sleep(platform))
    assert ask_all(platform, NAMES, 4) == [200] * len(NAMES)

    assert pinned in awake(platform)
    assert pinned not in went_to_sleep(platform)[num_before:]
    vinery(platform, "model", "change", pinned, "--no-pinned")
    wait_until_seen(platform)
