"""A model in use gets other files, or engines beside the first: no request fails, whatever is
killed meanwhile."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Running, until
from tests.system.clients import chat, platform_with, vinery
from tests.system.ledger import execute, labelled, metric
from tests.system.load import load

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"
# Longer than the part of a prompt by which conversations are recognised.
TEXT = "The capital of France is Paris. " * 12


platform = platform_with()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The next version of the model."""
    return Path(shutil.copytree(TINY_CHAT, tmp_path / "next"))


def state(platform: Running) -> tuple[str, int | None, bool]:
    """The state of its engine, the id of the process, and whether a former one serves."""
    ((state, pid, has_former),) = execute(
        platform, "SELECT state, pid, has_former FROM serving_enginestatus"
    )
    return str(state), pid, bool(has_former)


def change(platform: Running, folder: Path) -> None:
    vinery(platform, "model", "change", "tiny-chat", "--folder", str(folder))


def successor_of(platform: Running, former: int | None) -> int | None:
    """The engine that serves alone in place of a former one; None: not yet."""
    name, pid, has_former = state(platform)
    serves_alone = platform.pids("engine") == [pid] and not has_former
    return pid if name == "ready" and serves_alone and pid != former else None


def test_a_new_version_takes_over_under_load_despite_kills(platform: Running, folder: Path) -> None:
    _, first, _ = state(platform)
    with load(platform):
        change(platform, folder)
        second = until(lambda: successor_of(platform, first))
    change(platform, TINY_CHAT)
    third = until(lambda: successor_of(platform, second))
    with load(platform):
        change(platform, folder)
        (new,) = until(lambda: set(platform.pids("engine")) - {third})
        os.kill(new, signal.SIGKILL)
        fourth = until(lambda: successor_of(platform, third))
        change(platform, TINY_CHAT)
        until(lambda: len(platform.pids("engine")) == 2)
        platform.kill("node")
        until(lambda: successor_of(platform, fourth))


def test_the_former_version_serves_until_the_new_one_loads(platform: Running, folder: Path) -> None:
    (first,) = platform.pids("engine")
    weights = folder / "openvino_model.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    with load(platform) as clients:
        change(platform, folder)
        until(lambda: state(platform) == ("failed", None, True))
        assert "failed, the former version serves" in vinery(platform, "model", "list")
        clients.wait_for_more()
        platform.kill("node")
        until(lambda: state(platform) == ("failed", None, True))
        clients.wait_for_more()
        assert platform.pids("engine") == [first]
        change(platform, TINY_CHAT)
        until(lambda: state(platform) == ("ready", first, False))
        clients.wait_for_more()
    assert platform.pids("engine") == [first]


# -- Several engines --------------------------------------------------------------------------


def set_replicas(platform: Running, number: int) -> None:
    vinery(platform, "model", "change", "tiny-chat", "--replicas", str(number))
    until(lambda: len(platform.pids("engine")) == number, timeout_s=60)
    until(lambda: is_ready(platform, number), timeout_s=60)


def is_ready(platform: Running, number: int) -> bool:
    ready = [labelled(platform, "vinery_engine_ready", replica=str(each)) for each in range(number)]
    return all(value >= 1 for value in ready)


def num_tokens(platform: Running) -> list[float]:
    """The tokens that each engine has generated for requests."""
    name = "vllm:generation_tokens_total"
    return [labelled(platform, name, engine=each) for each in ("0", "1")]


def num_cached(platform: Running, *texts: str) -> int:
    """Returns the prompt tokens that the prefix cache had."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    response = chat(platform, messages=messages, max_tokens=4, temperature=0)
    assert response.status_code == 200, response.text
    return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_conversations_stay_on_one_engine_and_survive_its_end(platform: Running) -> None:
    set_replicas(platform, 2)
    before = num_tokens(platform)
    with load(platform):
        pass
    after = num_tokens(platform)
    assert all(new > old for new, old in zip(after, before, strict=True))

    # One web process learns up to 0.1 s later what another one has sent.
    nums = [second_turn(platform, number) for number in range(8)]
    assert sum(each >= 64 for each in nums) >= 6, nums

    with load(platform):
        os.kill(platform.pids("engine")[0], signal.SIGKILL)
        until(lambda: len(platform.pids("engine")) == 2)
        until(lambda: is_ready(platform, 2), timeout_s=60)
        platform.kill("node")
        until(lambda: len(platform.pids("engine")) == 2)
        set_replicas(platform, 1)
        set_replicas(platform, 2)
    assert state(platform)[0] == "ready"

    vinery(platform, "model", "change", "tiny-chat", "--idle-s", "1")
    until(lambda: state(platform)[0] == "asleep", timeout_s=60)
    vinery(platform, "model", "change", "tiny-chat", "--idle-s", "600")
    chat(platform, "Hi")
    until(lambda: is_ready(platform, 2), timeout_s=60)
    shown = vinery(platform, "model", "show", "tiny-chat")
    assert "replica 1" in shown


def second_turn(platform: Running, number: int) -> int:
    """Begin a conversation, and go on when all web processes see the same load: none. Returns the
    tokens in the cache."""
    first = f"Talk {number}. {TEXT}"
    until(lambda: metric(platform, "vllm:num_requests_running") == 0)
    num_cached(platform, first)
    until(lambda: metric(platform, "vllm:num_requests_running") == 0)
    return num_cached(platform, first, "Paris.", "And Rome?")
