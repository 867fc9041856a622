"""API keys take turns at the grammar checkers. No process runs: a test answers for them."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.engine import grammars
from vinery_serving.engine.grammars import UNDECIDED, GrammarChecks, OnChecked
from vinery_serving.transport.messages import GrammarSpec

EVIL, NEIGHBOUR = (1, 1), (2, 2)
SMALL = GrammarSpec("regex", "[a-z]{3}")


def costly(number: int) -> GrammarSpec:
    return GrammarSpec("regex", f"((a{{1,1000}}){{1,1000}}){{1,{500 + number}}}")


class FakeServer:
    """Keeps the callbacks of descriptors."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self.callbacks[fd] = on_readable

    def unwatch(self, fd: int) -> None:
        del self.callbacks[fd]


class FakeChecker:
    """A checker that is ready, and answers, when the test says so."""

    def __init__(self, *_: object) -> None:
        self.connection = self
        self.check: object = None
        self.is_long_idle = False
        self.is_ready = False
        self.is_late = False
        self.sent: list[GrammarSpec] = []
        self.grown_bytes = 0
        self.answer: str | None = None
        self.status: int | None = None  # of its end; None: no end by itself
        all_checkers.append(self)
        self.number = len(all_checkers)

    def fileno(self) -> int:
        return self.number

    def send(self, grammar: GrammarSpec) -> None:
        self.sent.append(grammar)

    def receive(self) -> str | None:
        if self.status is not None:
            raise EOFError
        return self.answer

    def is_too_late(self) -> bool:
        return self.is_late

    @property
    def used_s(self) -> float:
        return 2.0 if "1000" in self.sent[-1].source else 0.001

    def end(self) -> int | None:
        self.is_late = False
        return self.status


all_checkers: list[FakeChecker] = []


class Compiler:
    """Compiles at once, and counts."""

    def __init__(self) -> None:
        self.compiled: list[GrammarSpec] = []

    def compile(self, grammar: GrammarSpec, on_compiled: OnChecked) -> None:
        self.compiled.append(grammar)
        on_compiled(None)

    def close(self) -> None:
        pass


class Bench:
    """Checks with fake checkers."""

    def __init__(self, max_checkers: int) -> None:
        all_checkers.clear()
        self.server, self.compiler = FakeServer(), Compiler()
        parts: Any = None, 10, self.server, self.compiler
        self.checks = GrammarChecks(*parts, max_checkers=max_checkers)
        self.results: list[tuple[object, str | None]] = []

    def ask(self, grammar: GrammarSpec, lane: tuple[int, int], name: object = None) -> Any:
        return self.checks.check(grammar, lambda why: self.results.append((name, why)), lane)

    def wake(self, checker: FakeChecker, answer: str | None = None) -> None:
        """Let a checker report to be ready, or send its answer."""
        checker.answer = answer
        self.server.callbacks[checker.number]()

    @property
    def sent(self) -> list[GrammarSpec]:
        return [grammar for checker in all_checkers for grammar in checker.sent]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "Checker", FakeChecker)


def test_a_small_grammar_waits_for_one_costly_one_of_another_key_at_most() -> None:
    bench = Bench(max_checkers=2)
    for number in range(30):
        bench.ask(costly(number), EVIL)
    bench.ask(SMALL, NEIGHBOUR, "neighbour")

    evil, own = all_checkers
    bench.wake(evil)
    bench.wake(own)
    bench.wake(own, None)

    assert evil.sent == [costly(0)]
    assert bench.results == [("neighbour", None)]

    bench = Bench(max_checkers=1)
    for number in range(10):
        bench.ask(costly(number), EVIL)
    bench.ask(costly(9), NEIGHBOUR, "neighbour")
    (checker,) = all_checkers
    bench.wake(checker)
    bench.wake(checker, "no")
    bench.wake(checker, "no")

    assert checker.sent[:2] == [costly(0), costly(9)]
    assert bench.results[1:] == [(None, "no"), ("neighbour", "no")]
    assert costly(9) not in checker.sent[2:]


def test_refusals_are_remembered_without_grammars_and_slow_checkers_replaced() -> None:
    bench = Bench(max_checkers=1)
    bench.ask(costly(0), EVIL)
    (checker,) = all_checkers
    bench.wake(checker)
    checker.status = -signal.SIGPROF  # as the kernel ends it

    bench.wake(checker)
    bench.ask(costly(0), NEIGHBOUR)
    bench.ask(SMALL, NEIGHBOUR)

    assert len(bench.results) == 2
    assert all("takes longer than" in str(refusal) for _, refusal in bench.results)
    assert len(all_checkers) == 2
    assert bench.sent == [costly(0)], "the new checker is not ready yet"

    bench = Bench(max_checkers=1)
    large = GrammarSpec("regex", "x" * 1_000_000)
    bench.ask(large, EVIL)
    (checker,) = all_checkers
    bench.wake(checker)
    bench.wake(checker, "r" * 1_000_000)
    for _ in range(5):
        bench.ask(large, EVIL)

    assert len(checker.sent) == 1
    assert len(bench.results) == 6
    [(digest, refusal)] = bench.checks._refusals.items()
    assert len(digest) == 32
    assert len(refusal) == 500


def test_what_depends_on_time_is_no_verdict() -> None:
    bench = Bench(max_checkers=1)
    slow = GrammarSpec("ebnf", 'root ::= "a" [a-z]{0,100}')
    for number in range(2):
        bench.ask(slow, EVIL)
        checker = all_checkers[-1]
        bench.wake(checker)
        checker.is_late = True
        bench.checks.tick()
        assert len(bench.results) == number + 1
        assert bench.results[-1][1] in UNDECIDED
    assert bench.sent == [slow] * 2, "nothing is remembered"


def test_few_grammars_of_one_key_may_wait_and_none_of_a_client_that_left() -> None:
    bench = Bench(max_checkers=1)
    bench.ask(SMALL, EVIL)
    (checker,) = all_checkers
    bench.wake(checker)
    bench.wake(checker, None)
    number = 0
    while bench.checks.has_room(costly(number), EVIL):
        bench.ask(costly(number), EVIL)
        number += 1

    assert number == 64 + 1, "one of them is being checked"
    assert bench.checks.has_room(costly(number - 1), EVIL), "it waits already"
    assert bench.checks.has_room(SMALL, EVIL)
    assert bench.checks.has_room(costly(number), NEIGHBOUR)

    bench = Bench(max_checkers=1)
    bench.ask(costly(0), EVIL)
    forgets = [bench.ask(costly(number), EVIL) for number in range(1, 20)]
    for forget in forgets:
        forget()
        forget()  # does nothing
    (checker,) = all_checkers
    bench.wake(checker)
    bench.wake(checker, "no")
    bench.ask(SMALL, EVIL)

    assert checker.sent == [costly(0), SMALL]
    assert len(bench.results) == 1


def test_checkers_start_when_needed_and_end_when_idle() -> None:
    bench = Bench(max_checkers=4)
    lanes = [(number, number) for number in range(6)]
    for number, lane in enumerate(lanes):
        bench.ask(costly(number), lane)

    assert len(all_checkers) == 4
    for checker in all_checkers:
        bench.wake(checker)
    while busy := [each for each in bench.checks._checkers if each.check is not None]:
        bench.wake(busy[0], None)  # type: ignore[arg-type]
    assert sorted(one.source for one in bench.sent) == sorted(costly(at).source for at in range(6))
    assert len(bench.compiler.compiled) == 6
    bench.checks.tick()
    assert len(bench.server.callbacks) == 4
    for checker in all_checkers:
        checker.is_long_idle = True
    bench.checks.tick()
    assert len(bench.server.callbacks) == 1, "the first stays"


@table(
    "statuses, result, is_remembered",
    [
        ([-signal.SIGKILL], None, True),
        ([-signal.SIGSEGV], None, True),
        ([-signal.SIGKILL] * 2, grammars._CHECKER_LOST, False),
        ([1, 1], grammars._CHECKER_LOST, False),
        ([-signal.SIGSEGV, -signal.SIGABRT], grammars._CHECKER_DIED, True),
    ],
)
def test_a_grammar_whose_checker_ends_is_tried_once_more(
    statuses: list[int], result: str | None, is_remembered: bool
) -> None:
    bench = Bench(max_checkers=2)
    bench.ask(SMALL, EVIL)
    for status in statuses:
        bench.wake(all_checkers[-1])
        all_checkers[-1].status = status
        bench.wake(all_checkers[-1])
    if result is None:
        bench.wake(all_checkers[-1])
        bench.wake(all_checkers[-1])

    assert bench.results == [(None, result)]
    num_sent = len(bench.sent)
    bench.ask(SMALL, EVIL)
    assert (len(bench.results) == 2) == is_remembered
    assert len(all_checkers) == len(statuses) + (result is None) + (not is_remembered)
    assert len(bench.sent) == num_sent
