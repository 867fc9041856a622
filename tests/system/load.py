"""Clients that use a model without a pause, and accept no failure."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.conftest import Running, until
from tests.system.clients import openai_of

NUM_CLIENTS = 2
QUESTION = "What is the capital of France?"


class Load:
    """Clients that ask without a pause, and get whole answers."""

    def __init__(self, platform: Running, **changes: Any) -> None:
        self._client = openai_of(platform, **changes)
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
        messages = [{"role": "user", "content": QUESTION}]
        asked: Any = {"model": "tiny-chat", "messages": messages, "max_tokens": 12}
        completions = self._client.chat.completions
        if not is_streamed:
            answer = completions.create(**asked, temperature=0)
            return answer.choices[0].message.content or ""
        chunks = completions.create(**asked, temperature=0, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def wait_for_more(self) -> None:
        """Wait until each client has had an answer to a new request."""
        enough = self.num_answers + 2 * NUM_CLIENTS
        until(lambda: self.num_answers >= enough or self.failures, timeout_s=60)

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def load(platform: Running, **changes: Any) -> Iterator[Load]:
    """No request of these clients fails. `changes`: as of `openai_of`."""
    load = Load(platform, **changes)
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
