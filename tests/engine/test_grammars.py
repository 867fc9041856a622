"""Grammars are compiled beside the pipeline, in the cache that its steps use."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serving.engine import grammars
from serving.engine.grammars import GrammarChecks, SharedCompiler
from serving.transport.messages import GrammarSpec, Pong
from serving.transport.server import SocketServer

from .conftest import TIMEOUT_S, TINY_CHAT, SharedEngine

pytestmark = pytest.mark.live

VOCAB_SIZE = json.loads((TINY_CHAT / "config.json").read_text())["vocab_size"]
GOOD = GrammarSpec("ebnf", 'root ::= "yes" | "no"')
BAD = GrammarSpec("ebnf", "root ::= (")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    server = SocketServer(tmp_path / "s.sock", lambda: Pong(0, None))  # type: ignore[arg-type]
    yield server
    server.close()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    import openvino_genai

    return openvino_genai.Tokenizer(str(TINY_CHAT))


def wait_for(server: SocketServer, heard: list[Any], count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(heard) < count:
        server.poll(0.1)
        assert time.monotonic() < deadline, "no answer came"


def test_every_grammar_is_answered_in_order(server: SocketServer, tokenizer: Any) -> None:
    compiler = SharedCompiler(tokenizer, VOCAB_SIZE, server)
    heard: list[str | None] = []

    for grammar in (GOOD, BAD, GOOD):
        compiler.compile(grammar, heard.append)
    wait_for(server, heard, 3)
    compiler.close()

    first, second, third = heard
    assert first is None
    assert second
    assert third is None


def test_where_the_tokenizer_cannot_be_shared_the_step_compiles(
    server: SocketServer, tokenizer: Any
) -> None:
    compiler = SharedCompiler(tokenizer, -1, server)  # no pipeline has such a vocabulary
    heard: list[str | None] = []

    compiler.compile(GOOD, heard.append)
    wait_for(server, heard, 1)
    compiler.close()

    assert heard == [None]


class CountingCompiler:
    """Approves of everything when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[GrammarSpec, Any]] = []

    def compile(self, grammar: GrammarSpec, answer: Any) -> None:
        self.asked.append((grammar, answer))

    def close(self) -> None:
        pass


def test_nobody_is_told_before_the_pipeline_knows_the_grammar(server: SocketServer) -> None:
    compiler = CountingCompiler()
    checks = GrammarChecks(TINY_CHAT, VOCAB_SIZE, server, compiler)  # type: ignore[arg-type]
    heard: list[str | None] = []
    refused: list[str | None] = []

    checks.check(GOOD, heard.append)
    checks.check(GOOD, heard.append)
    checks.check(BAD, refused.append)
    wait_for(server, refused, 1)

    assert heard == []
    [(grammar, answer)] = compiler.asked
    assert grammar == GOOD
    answer(None)
    assert heard == [None, None]
    checks.check(GOOD, heard.append)
    assert heard == [None, None, None]
    assert len(compiler.asked) == 1
    checks.close()


def of_name(number: int) -> GrammarSpec:
    members = "".join(f'"a{number}{letter}: " [a-z0-9]{{1,20}} ' for letter in "abcdefgh")
    return GrammarSpec("ebnf", f"root ::= {members}")


def test_a_checker_that_has_grown_large_is_replaced_and_nobody_notices(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled grammars are never let go of but with their process."""
    limit = 8 * 2**20
    monkeypatch.setattr(grammars, "_MAX_CHECKER_BYTES", limit)
    checks = GrammarChecks(TINY_CHAT, VOCAB_SIZE, server)
    pids, grown = set(), [0]

    def note(refusal: str | None, heard: list[str | None]) -> None:
        heard.append(refusal)
        if checks._process is not None and checks._base_bytes is not None:
            pids.add(checks._process.pid)
            rss = psutil.Process(checks._process.pid).memory_info().rss
            grown.append(rss - checks._base_bytes)

    heard: list[str | None] = []
    refused: list[str | None] = []
    for number in range(120):
        checks.check(of_name(number), lambda refusal: note(refusal, heard))
        if number % 50 == 0:
            checks.check(GrammarSpec("ebnf", f"root ::= ({number}"), refused.append)
    wait_for(server, heard, 120)
    wait_for(server, refused, 3)
    checks.close()

    assert heard == [None] * 120
    assert all(refused)
    assert len(pids) > 1
    assert max(grown) <= limit + 2**20


async def test_many_new_grammars_at_once_are_all_held_to(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        words = [f"word{number}" for number in range(12)]
        submits = [
            gateway.submit("hello", grammar=GrammarSpec("ebnf", f'root ::= "{word}"'))
            for word in words
        ]

        answers = await gateway.ask(*submits)

        assert [gateway.text(answer) for answer in answers] == words
