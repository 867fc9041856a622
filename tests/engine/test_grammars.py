"""Grammars are checked in a process, which ends with its engine, and compiled beside a pipeline."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import runs, until
from tests.engine.conftest import TIMEOUT_S, TINY_CHAT, Gateway
from tests.engine.test_grammar_turns import Compiler
from tests.tables import table
from vinery_serving.core.request import GrammarKind
from vinery_serving.engine import grammars
from vinery_serving.engine.canary import Canary
from vinery_serving.engine.grammars import (
    Checker,
    Checkers,
    GrammarChecks,
    OnChecked,
    SharedCompiler,
)
from vinery_serving.engine.supervision import PipelineBroken
from vinery_serving.processes.confine import Part, available
from vinery_serving.transport.messages import GrammarSpec, Pong
from vinery_serving.transport.server import SocketServer, bound

pytestmark = pytest.mark.live

VOCAB_SIZE = json.loads((TINY_CHAT / "config.json").read_text())["vocab_size"]
GOOD = GrammarSpec("ebnf", 'root ::= "yes" | "no"')
BAD = GrammarSpec("ebnf", "root ::= (")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    hello = Pong(0, None)  # type: ignore[arg-type]
    server = SocketServer(bound(tmp_path / "s.sock"), b"", lambda: hello)
    yield server
    server.close()


@pytest.fixture
def checkers() -> Iterator[Checkers]:
    checkers = Checkers(TINY_CHAT)
    yield checkers
    checkers.control.close()
    asyncio.run(checkers._process.wait())
    checkers._process.close()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    import openvino_genai

    return openvino_genai.Tokenizer(str(TINY_CHAT))


def wait_for(server: SocketServer, results: list[Any], count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(results) < count:
        server.poll(0.1)
        assert time.monotonic() < deadline, "no result arrived"


@table(
    "vocab_size, is_bad_refused",
    [(VOCAB_SIZE, True), (-1, False)],  # no pipeline has such a vocabulary: the step compiles
)
def test_grammars_are_compiled_in_order_if_possible(server, tokenizer, vocab_size, is_bad_refused):
    compiler = SharedCompiler(tokenizer, vocab_size, server)
    results: list[str | None] = []

    for grammar in (GOOD, BAD, GOOD):
        compiler.compile(grammar, results.append)
    wait_for(server, results, 3)
    compiler.close()

    assert [bool(each) for each in results] == [False, is_bad_refused, False]


class SlowCompiler(Compiler):
    """Keeps the newest callback, which a test calls."""

    def compile(self, grammar: GrammarSpec, on_compiled: OnChecked) -> None:
        self.compiled.append(grammar)
        self.on_compiled = on_compiled


def test_requests_go_on_after_the_pipeline_knows_the_grammar(
    server: SocketServer, checkers: Checkers
) -> None:
    compiler = SlowCompiler()
    checks = GrammarChecks(checkers, VOCAB_SIZE, server, compiler)  # type: ignore[arg-type]
    results: list[str | None] = []
    refused: list[str | None] = []

    checks.check(GOOD, results.append)
    checks.check(GOOD, results.append)
    checks.check(BAD, refused.append, (1, 1))
    wait_for(server, refused, 1)
    wait_for(server, compiler.compiled, 1)

    assert results == []
    assert compiler.compiled == [GOOD]
    compiler.on_compiled(None)
    assert results == [None, None]
    checks.check(GOOD, results.append)
    assert results == [None, None, None]
    assert compiler.compiled == [GOOD]
    checks.close()


def of_name(number: int) -> GrammarSpec:
    members = "".join(f'"a{number}{letter}: " [a-z0-9]{{1,20}} ' for letter in "abcdefgh")
    return GrammarSpec("ebnf", f"root ::= {members}")


def test_a_checker_that_has_grown_large_is_replaced_without_a_refusal(
    server, checkers, monkeypatch
):
    """GenAI frees compiled grammars only with their process."""
    limit = 2 * 2**20
    monkeypatch.setattr(grammars, "_MAX_CHECKER_BYTES", limit)
    checks = GrammarChecks(checkers, VOCAB_SIZE, server, Compiler())  # type: ignore[arg-type]
    monkeypatch.setattr(grammars, "_MAX_WAITING_OF_LANE", 200)
    pids, grown = set(), [0]

    def note(refusal: str | None, results: list[str | None]) -> None:
        results.append(refusal)
        pids.update(each.pid for each in psutil.Process(checkers._process.pid).children())
        grown.extend(each.grown_bytes for each in checks._checkers)

    results: list[str | None] = []
    refused: list[str | None] = []
    for number in range(45):
        checks.check(of_name(number), lambda refusal: note(refusal, results))
        if number % 20 == 0:
            checks.check(GrammarSpec("ebnf", f"root ::= ({number}"), refused.append)
    wait_for(server, results, 45)
    wait_for(server, refused, 3)
    checks.close()

    assert results == [None] * 45
    assert all(refused)
    assert len(pids) > 1
    assert max(grown) <= limit + 2**20


def test_a_refusal_that_quotes_half_a_character_is_a_reason(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    canary = Canary(tokenizer, VOCAB_SIZE)

    assert not list(tmp_path.iterdir()), "a process that is killed would leave them"
    refusal = canary.refusal(GrammarSpec(GrammarKind.EBNF, "\u202e"))

    assert "Unexpected character" in refusal
    assert canary.refusal(GrammarSpec(GrammarKind.EBNF, 'root ::= "a"')) is None


@pytest.mark.smoke
async def test_many_new_grammars_at_once_are_all_enforced(gateway: Gateway) -> None:
    words = [f"word{number}" for number in range(12)]
    grammars = [GrammarSpec("ebnf", f'root ::= "{word}"') for word in words]
    answers = await gateway.ask(*(gateway.submit("hello", grammar=each) for each in grammars))
    assert [gateway.text(answer) for answer in answers] == words


def test_checkers_are_confined_and_the_engine_ends_no_other_process(checkers: Checkers) -> None:
    checker = Checker(checkers, VOCAB_SIZE)
    assert checker.receive() is None
    starter = psutil.Process(checkers._process.pid)
    for each in (starter, *starter.children()):
        status = Path(f"/proc/{each.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert ("Seccomp:\t2" in status) == (Part.CALLS in available())
    assert checker.end() == -signal.SIGKILL
    with pytest.raises(PipelineBroken):
        checkers.ask(1)


# Sends a grammar that takes minutes, and waits to be killed.
ENGINE = """
import sys
from pathlib import Path
from vinery_serving.engine.grammars import Checker, Checkers
from vinery_serving.transport.messages import GrammarSpec
checkers = Checkers(Path(sys.argv[1]))
checker = Checker(checkers, 3072)
assert checker.receive() is None
checker.send(GrammarSpec("regex", "((a{1,300}b{1,300}){1,300}|c){1,300}" * 8))
print(checkers._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_checker_ends_with_a_killed_engine_inside_a_grammar() -> None:
    command = [sys.executable, "-c", ENGINE, str(TINY_CHAT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        (checker,) = psutil.Process(int(engine.stdout.readline())).children()
        until(lambda: checker.cpu_times().user > 0.5)

        engine.send_signal(signal.SIGKILL)

        until(lambda: not runs(checker))
