"""Real engine processes, a client for them, and a pipeline in the process of the tests.

`shared_engine` is for tests that leave an engine unchanged: the process lives as long as the test
session. `start_engine` starts a process for one test, which may kill the process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer

from tests.fakes.engine import KEY
from vinery_serving.core.request import Sampling
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.node.engine_process import EngineProcess
from vinery_serving.transport import messages
from vinery_serving.transport.client import EngineClient, GenerationUpdate, OutputStream
from vinery_serving.transport.sockets import UnixAddress

if TYPE_CHECKING:  # at run time only tests with a pipeline load OpenVINO
    from vinery_serving.engine.batch import Batch
    from vinery_serving.engine.pipeline import Pipeline

TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
TINY_DRAFT = TINY_CHAT.with_name("tiny-draft")
TINY_VISION = TINY_CHAT.with_name("tiny-vision")
TIMEOUT_S = 60.0
NO_REASONING = "<think>\n\n</think>\n\n"


def chat_text(text: str, reasoning: str = NO_REASONING) -> str:
    """The prompt of a chat with this question."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{reasoning}"


@dataclass
class Answer:
    """All updates of one generation."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    rejection: messages.Rejected | None = None
    num_cached_tokens: int | None = None
    logprobs: list[messages.TokenLogprobs] = field(default_factory=list)
    is_accepted: bool = False
    unenforced: str = ""

    @property
    def is_over(self) -> bool:
        return self.finish is not None or self.rejection is not None

    def take(self, update: GenerationUpdate) -> None:
        match update:
            case messages.Accepted():
                self.is_accepted, self.unenforced = True, update.unenforced
            case messages.Rejected():
                self.rejection = update
            case messages.TokenOutput():
                self.tokens += update.token_ids
                self.logprobs += update.logprobs
                self.finish = update.finish
                if update.num_cached_tokens is not None:
                    self.num_cached_tokens = update.num_cached_tokens


class Gateway:
    """A client with helpers for these tests."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.tokenizer = Tokenizer.from_file(str(TINY_CHAT / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(chat_text(text), add_special_tokens=False).ids)

    def submit(self, prompt: str | list[int], **values: Any) -> messages.Submit:
        ids = self.ids(prompt) if isinstance(prompt, str) else prompt
        asked = {"max_new_tokens": 200, "deadline_s": TIMEOUT_S, **values}
        asked.setdefault("sampling", Sampling())
        return messages.Submit(self.client.new_id(), array("i", ids).tobytes(), **asked)

    def start(self, *submits: messages.Submit) -> OutputStream:
        return self.client.submit(submits)

    async def finish(self, stream: OutputStream, *submits: messages.Submit) -> list[Answer]:
        answers = {submit.id: Answer() for submit in submits}
        while not all(answer.is_over for answer in answers.values()):
            for update in await self.updates(stream):
                answers[update.id].take(update)
        return list(answers.values())

    async def read_until(self, stream: OutputStream, answer: Answer, num_tokens: int) -> None:
        """Read until the answer has `num_tokens` tokens, or is over."""
        while len(answer.tokens) < num_tokens and not answer.is_over:
            for update in await self.updates(stream):
                answer.take(update)

    async def updates(self, stream: OutputStream) -> list[GenerationUpdate]:
        updates = await stream.next(TIMEOUT_S)
        assert updates, "the engine is silent"
        return updates

    async def ids_before(self, stream: OutputStream, last: messages.Submit) -> list[int]:
        """Return the generations that have ended up to `last`, which is included."""
        ended: list[int] = []
        while last.id not in ended:
            for update in await self.updates(stream):
                assert not isinstance(update, messages.Rejected)
                if isinstance(update, messages.TokenOutput) and update.finish is not None:
                    ended.append(update.id)
        return ended

    async def ask(self, *submits: messages.Submit) -> list[Answer]:
        return await self.finish(self.start(*submits), *submits)

    async def stats(self) -> messages.EngineStats:
        return await self.client.ping(TIMEOUT_S)

    async def stats_when_idle(self) -> messages.EngineStats:
        while True:
            stats = await self.stats()
            if stats.num_running == stats.num_waiting == 0:
                return stats

    def text(self, answer: Answer) -> str:
        return str(self.tokenizer.decode(answer.tokens))


class OwnGateway(Gateway):
    """The gateway of an engine that one test alone uses."""

    def __init__(self, client: EngineClient, process: EngineProcess) -> None:
        super().__init__(client)
        self.process = process

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@asynccontextmanager
async def serving(config: EngineConfig, **values: Any) -> AsyncIterator[OwnGateway]:
    """A new engine process, and a client connected to it."""
    process = EngineProcess(config, **values)
    client = EngineClient(UnixAddress(config.socket_path), config.socket_key)
    try:
        await process.start()
        client.open()
        await client.wait_connected(TIMEOUT_S)
        yield OwnGateway(client, process)
    finally:
        await client.close()
        await process.end()


StartEngine = Callable[..., AbstractAsyncContextManager[OwnGateway]]
SharedEngine = Callable[..., AbstractAsyncContextManager[Gateway]]


def engine_config(home: Path, name: str, options: Any, folder: Path = TINY_CHAT) -> EngineConfig:
    return EngineConfig(
        name="tiny-chat",
        folder=folder,
        device="CPU",
        socket_path=home / f"{name}.sock",
        socket_key=KEY,
        cache_dir=home / "cache",
        max_context=2048,
        options=EngineOptions(**options),
    )


@pytest.fixture
def start_engine(tmp_path: Path) -> StartEngine:
    def start(
        name: str = "e", *, replaces_hung: bool = True, folder: Path = TINY_CHAT, **options: Any
    ) -> AbstractAsyncContextManager[OwnGateway]:
        config = engine_config(tmp_path, name, options, folder)
        return serving(config, replaces_hung=replaces_hung)

    return start


@pytest.fixture(scope="session")
def engine_sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Starts one process for each set of options, and returns its socket."""
    processes: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def socket_of(folder: Path = TINY_CHAT, **options: Any) -> Path:
        key = json.dumps([str(folder), options], sort_keys=True)
        if key not in processes:
            config = engine_config(tmp_path_factory.mktemp("engine"), "e", options, folder)
            command = [sys.executable, "-m", "vinery_serving.engine", config.name]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
            )
            process.stdin.write(config.to_line())
            process.stdin.flush()
            processes[key] = process, config.socket_path
            assert json.loads(process.stdout.readline())["event"] == "ready"
        return processes[key][1]

    yield socket_of
    for process, _ in processes.values():
        process.kill()
        process.communicate()


@pytest.fixture
def shared_engine(engine_sockets: Callable[..., Path]) -> SharedEngine:
    @asynccontextmanager
    async def connect(**options: Any) -> AsyncIterator[Gateway]:
        client = EngineClient(UnixAddress(engine_sockets(**options)), KEY)
        client.open()
        try:
            await client.wait_connected(TIMEOUT_S)
            gateway = Gateway(client)
            await gateway.stats_when_idle()
            yield gateway
        finally:
            await client.close()

    return connect


@pytest.fixture
async def gateway(shared_engine: SharedEngine) -> AsyncIterator[Gateway]:
    """The gateway of an engine without options, which tests leave unchanged."""
    async with shared_engine() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    from tests.engine.in_process import pipeline_of

    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"))


@pytest.fixture
def batch(pipeline: Pipeline) -> Iterator[Batch]:
    """A batch without generations on the file's pipeline."""
    from tests.engine.in_process import emptied

    yield from emptied(pipeline)
