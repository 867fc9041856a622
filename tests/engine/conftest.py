"""A real engine process, and a client that talks to it."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from serving.engine.config import EngineConfig, EngineOptions
from serving.node.engine_process import EngineProcess
from serving.transport.client import EngineClient, OutputStream
from serving.transport.messages import Accepted, Rejected, SamplingParams, Submit, TokenOutput

TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
TIMEOUT_S = 60.0


@dataclass
class Answer:
    """All that the engine said of one generation."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    rejection: Rejected | None = None
    num_cached_tokens: int | None = None
    is_accepted: bool = False

    @property
    def is_over(self) -> bool:
        return self.finish is not None or self.rejection is not None

    def take(self, message: Accepted | TokenOutput | Rejected) -> None:
        match message:
            case Accepted():
                self.is_accepted = True
            case Rejected():
                self.rejection = message
            case TokenOutput():
                self.tokens += message.token_ids
                self.finish = message.finish
                if message.num_cached_tokens is not None:
                    self.num_cached_tokens = message.num_cached_tokens


class Gateway:
    """A client with the words that these tests need."""

    def __init__(self, client: EngineClient, process: EngineProcess) -> None:
        self.client = client
        self.process = process
        self.tokenizer = Tokenizer.from_file(str(TINY_CHAT / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        prompt = (
            f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        return list(self.tokenizer.encode(prompt, add_special_tokens=False).ids)

    def submit(self, prompt: str | list[int], **values: Any) -> Submit:
        ids = self.ids(prompt) if isinstance(prompt, str) else prompt
        defaults: dict[str, Any] = {
            "sampling": SamplingParams(),
            "max_new_tokens": 200,
            "deadline_s": TIMEOUT_S,
        }
        return Submit(
            id=self.client.new_id(), prompt_ids=array("i", ids).tobytes(), **{**defaults, **values}
        )

    def start(self, *submits: Submit) -> OutputStream:
        return self.client.submit(submits)

    async def finish(self, run: OutputStream, *submits: Submit) -> list[Answer]:
        answers = {submit.id: Answer() for submit in submits}
        while not all(answer.is_over for answer in answers.values()):
            said = await run.next(TIMEOUT_S)
            assert said, "the engine fell silent"
            for each in said:
                answers[each.id].take(each)
        return list(answers.values())

    async def hear(self, run: OutputStream, answer: Answer, num_tokens: int) -> None:
        """Read until there are so many tokens, or no more."""
        while len(answer.tokens) < num_tokens and not answer.is_over:
            said = await run.next(TIMEOUT_S)
            assert said, "the engine fell silent"
            for each in said:
                answer.take(each)

    async def ask(self, *submits: Submit) -> list[Answer]:
        return await self.finish(self.start(*submits), *submits)

    def text(self, answer: Answer) -> str:
        return str(self.tokenizer.decode(answer.tokens))


StartEngine = Callable[..., Any]


@pytest.fixture
def start_engine(tmp_path: Path) -> StartEngine:
    @asynccontextmanager
    async def start(name: str = "e", **options: Any) -> AsyncIterator[Gateway]:
        config = EngineConfig(
            name="tiny-chat",
            folder=TINY_CHAT,
            device="CPU",
            socket_path=tmp_path / f"{name}.sock",
            sysfs=tmp_path / "sys",
            cache_dir=tmp_path / "cache",
            max_context=2048,
            options=EngineOptions(**options),
        )
        process = EngineProcess(config)
        client = EngineClient(config.socket_path)
        try:
            await process.start()
            client.open()
            await client.wait_connected(TIMEOUT_S)
            yield Gateway(client, process)
        finally:
            await client.close()
            await process.end()

    return start
