"""A model with several engines: they share its requests, and one may be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Running, run_platform, until
from tests.system.commands import vinery
from tests.system.ledger import execute, labelled
from tests.system.load import load

pytestmark = pytest.mark.system

# Longer than the part of a prompt by which conversations are recognised.
TEXT = "The capital of France is Paris. " * 12
# Engines report their load ten times a second.
LOAD_IS_KNOWN_S = 0.5


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("replicas") / "home") as platform:
        set_replicas(platform, 2)
        yield platform


def set_replicas(platform: Running, number: int) -> None:
    vinery(platform, "model", "change", "tiny-chat", "--replicas", str(number))
    until(lambda: len(platform.pids("engine")) == number, timeout_s=60)
    until(lambda: is_ready(platform, number), timeout_s=60)


def is_ready(platform: Running, number: int) -> bool:
    ready = [labelled(platform, "vinery_engine_ready", replica=str(each)) for each in range(number)]
    return all(value >= 1 for value in ready)


def state(platform: Running) -> str:
    ((state,),) = execute(platform, "SELECT state FROM serving_enginestatus")
    return str(state)


def num_tokens(platform: Running) -> list[float]:
    """The tokens that each engine has generated for requests."""
    name = "vinery_engine_output_tokens_total"
    return [labelled(platform, name, replica=each) for each in ("0", "1")]


def chat(platform: Running, *texts: str) -> int:
    """Returns the prompt tokens that the prefix cache had."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    response = httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {platform.api_key}"},
        json={"model": "tiny-chat", "messages": messages, "max_tokens": 4, "temperature": 0},
        timeout=60,
    )
    assert response.status_code == 200, response.text
    cached: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def test_both_engines_answer_and_a_conversation_stays_on_one(platform: Running) -> None:
    before = num_tokens(platform)
    with load(platform):
        pass
    after = num_tokens(platform)
    assert all(new > old for new, old in zip(after, before, strict=True))

    num_cached = [second_turn(platform, number) for number in range(10)]
    # Two web processes choose the same engine if they see the same load: one may be late.
    assert sum(each >= 64 for each in num_cached) >= 9, num_cached


def second_turn(platform: Running, number: int) -> int:
    """Begin a conversation, and go on when the load is known. Returns the tokens in the cache."""
    first = f"Talk {number}. {TEXT}"
    time.sleep(LOAD_IS_KNOWN_S)
    chat(platform, first)
    time.sleep(LOAD_IS_KNOWN_S)
    return chat(platform, first, "Paris.", "And Rome?")


def test_no_request_fails_when_one_of_them_is_killed_or_given_up(platform: Running) -> None:
    with load(platform):
        os.kill(platform.pids("engine")[0], signal.SIGKILL)
        until(lambda: len(platform.pids("engine")) == 2)
        until(lambda: is_ready(platform, 2), timeout_s=60)
        platform.kill("node")
        until(lambda: len(platform.pids("engine")) == 2)
        set_replicas(platform, 1)
        set_replicas(platform, 2)
    assert state(platform) == "ready"


def test_a_model_with_several_engines_sleeps_and_wakes(platform: Running) -> None:
    vinery(platform, "model", "change", "tiny-chat", "--idle-s", "1")
    until(lambda: state(platform) == "asleep", timeout_s=60)
    vinery(platform, "model", "change", "tiny-chat", "--idle-s", "600")
    chat(platform, "Hi")
    until(lambda: is_ready(platform, 2), timeout_s=60)
    shown = vinery(platform, "model", "show", "tiny-chat")
    assert "replica 1" in shown
