"""A model gets other files while clients use it: no request fails, whatever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.conftest import REPOSITORY, Running, run_platform, until
from tests.system.commands import vinery
from tests.system.ledger import execute

pytestmark = pytest.mark.system

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"
NUM_CLIENTS = 4
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("versions") / "home") as platform:
        yield platform


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


class Load:
    """Clients that ask without a pause, and get whole answers."""

    def __init__(self, platform: Running) -> None:
        self._client = openai.OpenAI(
            base_url=f"{platform.base_url}/v1", api_key=platform.api_key, max_retries=0
        )
        self._is_over = threading.Event()
        self.num_answers = 0
        self.failures: list[BaseException] = []

    def run(self, *, is_streamed: bool) -> None:
        while not self._is_over.is_set():
            try:
                text = self._ask(is_streamed=is_streamed)
                assert "Paris" in text, text
            except BaseException as error:
                self.failures.append(error)
                return
            self.num_answers += 1

    def _ask(self, *, is_streamed: bool) -> str:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [
            {"role": "user", "content": QUESTION}
        ]
        completions = self._client.chat.completions
        if not is_streamed:
            answer = completions.create(
                model="tiny-chat", messages=messages, max_tokens=12, temperature=0
            )
            return answer.choices[0].message.content or ""
        chunks = completions.create(
            model="tiny-chat", messages=messages, max_tokens=12, temperature=0, stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def wait_for_more(self) -> None:
        """Wait until each client has had an answer to a new request."""
        enough = self.num_answers + 2 * NUM_CLIENTS
        until(lambda: self.num_answers >= enough or self.failures, timeout_s=60)

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def load(platform: Running) -> Iterator[Load]:
    """No request of these clients fails."""
    load = Load(platform)
    threads = [
        threading.Thread(target=load.run, kwargs={"is_streamed": bool(number % 2)})
        for number in range(NUM_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    try:
        load.wait_for_more()
        yield load
        load.wait_for_more()
    finally:
        load.end()
        for thread in threads:
            thread.join()
    assert load.failures == []


def test_a_new_version_takes_over_under_load(platform: Running, folder: Path) -> None:
    _, first, _ = state(platform)
    with load(platform):
        change(platform, folder)
        until(lambda: state(platform)[0] == "ready" and state(platform)[1] != first, timeout_s=60)
        until(lambda: first not in platform.pids("engine"), timeout_s=60)
        _, second, has_former = state(platform)
        assert platform.pids("engine") == [second]
        assert not has_former
        change(platform, TINY_CHAT)
        until(lambda: state(platform)[1] not in (None, second), timeout_s=60)
    until(lambda: len(platform.pids("engine")) == 1, timeout_s=60)


def test_the_former_version_serves_while_the_new_one_cannot_load(
    platform: Running, folder: Path
) -> None:
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


def test_kills_while_a_new_version_loads_lose_no_request(platform: Running, folder: Path) -> None:
    (first,) = platform.pids("engine")
    with load(platform):
        change(platform, folder)
        until(lambda: len(platform.pids("engine")) == 2)
        (new,) = set(platform.pids("engine")) - {first}
        os.kill(new, signal.SIGKILL)
        until(lambda: state(platform)[0] == "ready", timeout_s=60)
        until(lambda: first not in platform.pids("engine"), timeout_s=60)
        change(platform, TINY_CHAT)
        until(lambda: len(platform.pids("engine")) == 2)
        platform.kill("node")
        until(lambda: len(platform.pids("engine")) == 1, timeout_s=60)
        until(lambda: state(platform)[0] == "ready", timeout_s=60)
