"""Checks and compiles grammars without stopping the step loop.

A new grammar goes through two stages. First a checker, a process with a canary, tries it. The
process is killed if the grammar is too costly. There are a few checkers where there are cores, each
started when it is first needed. Then `SharedCompiler` compiles it on a thread, with
a canary that shares the pipeline's tokenizer. GenAI keeps compiled grammars with the tokenizer, so
the pipeline's step finds the grammar compiled. GenAI releases the GIL while it compiles.

GenAI keeps every compiled grammar for as long as its tokenizer lives (see
`engine/checker`). The growth of all checkers shows how much the engine's own tokenizer
holds, and when the engine must be replaced.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from vinery_serving.engine.canary import Canary
from vinery_serving.engine.checker import CHECK_TIMEOUT_S, Checker
from vinery_serving.engine.fair_queue import FairQueue, Lane
from vinery_serving.engine.grammar_work import is_too_much
from vinery_serving.transport.messages import GrammarSpec
from vinery_serving.transport.server import SocketServer

log = logging.getLogger(__name__)

# Gets the reason why a grammar is refused; None: it can be used.
OnChecked = Callable[[str | None], None]

# More would take memory, and the engine needs the cores too.
_MAX_CHECKERS: Final = 4
# A further checker that had nothing to do for so long is ended.
_MAX_IDLE_S: Final = 60.0
# New grammars of one lane. Each is some kilobytes; known ones do not wait.
_MAX_WAITING_OF_LANE: Final = 64
# What a lane is charged for a grammar until it is known.
_EXPECTED_S: Final = 0.02
_MAX_REMEMBERED: Final = 16_384
_MAX_REASON_CHARS: Final = 500
# How much the engine's tokenizer may hold: 750 grammars with the largest vocabularies, more than
# 10,000 with small ones.
_MAX_COMPILED_BYTES: Final = 2**30
_TOO_COSTLY: Final = (
    f"it takes longer than {CHECK_TIMEOUT_S:g} s to compile; use fewer alternatives or "
    "smaller repetition bounds"
)
_TOO_SLOW: Final = f"{_TOO_COSTLY}, or send the request again"
_NO_CHECKER: Final = "the grammar compiler does not start on this machine"
_CHECKER_DIED: Final = "the grammar compiler could not handle it"
_CHECKER_LOST: Final = "the grammar compiler was ended twice; send the request again"
# These are no faults of the grammar, and are not remembered.
UNDECIDED: Final = frozenset((_TOO_SLOW, _NO_CHECKER, _CHECKER_LOST))
# How a process ends by what it does.
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


class SharedCompiler:
    """Compiles approved grammars for the pipeline, one at a time, on a thread of its own."""

    def __init__(self, tokenizer: Any, vocab_size: int, server: SocketServer) -> None:
        """`server.poll` calls back when a grammar is compiled."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._server = server
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammars")
        self._results: SimpleQueue[tuple[OnChecked, str | None]] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        server.watch(self._wake_read, self._receive)

    def compile(self, grammar: GrammarSpec, on_compiled: OnChecked) -> None:
        self._thread.submit(self._compile, grammar, on_compiled)

    def close(self) -> None:
        """Call back no more. The thread ends after its present grammar."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._server.unwatch(self._wake_read)

    def _receive(self) -> None:
        os.read(self._wake_read, 1024)
        while not self._results.empty():
            on_compiled, refusal = self._results.get()
            on_compiled(refusal)

    def _compile(self, grammar: GrammarSpec, on_compiled: OnChecked) -> None:
        refusal = None if self._canary is None else self._canary.refusal(grammar)
        self._results.put((on_compiled, refusal))
        os.write(self._wake_write, b".")

    @cached_property
    def _canary(self) -> Canary | None:
        """None if the tokenizer cannot be shared: then the step compiles."""
        try:
            return Canary(self._tokenizer, self._vocab_size)
        except (RuntimeError, ValueError):
            return None


@dataclass(eq=False, slots=True)
class _Check:
    grammar: GrammarSpec
    digest: bytes
    callbacks: list[OnChecked] = field(default_factory=list)
    # One for each lane that has asked for it, so that it waits as its first lane does.
    entries: list[_Entry] = field(default_factory=list)
    lane: Lane = (0, 0)  # that pays for it
    has_begun: bool = False
    was_lost: bool = False  # with its checker


@dataclass(eq=False, slots=True)
class _Entry:
    check: _Check
    lane: Lane


@dataclass(eq=False, slots=True)
class _Work:
    checker: Checker
    check: _Check | None
    idle_since: float = 0.0

    @property
    def is_long_idle(self) -> bool:
        return time.monotonic() - self.idle_since > _MAX_IDLE_S


class GrammarChecks:
    """Checks grammars, of each lane in turn, and remembers the results. Nothing here waits.

    A lane is charged the time that its grammars take. It never has all checkers, so that the small
    grammar of another lane need not wait for the end of a costly one.
    """

    def __init__(
        self,
        folder: Path,
        vocab_size: int,
        server: SocketServer,
        compiler: SharedCompiler,
        *,
        max_checkers: int | None = None,
    ) -> None:
        """`compiler` compiles each approved grammar before its requests are called back."""
        self._folder = folder
        self._vocab_size = vocab_size
        self._server = server
        self._compiler = compiler
        self._max_checkers = max_checkers or min(_MAX_CHECKERS, max(2, os.cpu_count() or 1))
        self._refusals: OrderedDict[bytes, str | None] = OrderedDict()  # by digest
        self._checks: dict[bytes, _Check] = {}  # by digest, until they are concluded
        self._to_check: FairQueue[_Entry] = FairQueue(lambda _: _EXPECTED_S)
        self._to_compile: FairQueue[_Check] = FairQueue(lambda _: _EXPECTED_S)
        self._is_compiling = False
        self._works: list[_Work] = []
        self._past_bytes = 0  # how much earlier checkers had grown

    def has_room(self, grammar: GrammarSpec, lane: Lane) -> bool:
        digest = _digest(grammar)
        if digest in self._refusals or self._to_check.num_of(lane) < _MAX_WAITING_OF_LANE:
            return True
        check = self._checks.get(digest)
        return check is not None and (check.has_begun or _has_entry(check, lane))

    def check(
        self, grammar: GrammarSpec, on_checked: OnChecked, lane: Lane = (0, 0)
    ) -> Callable[[], None]:
        """Call `on_checked`, at once if the grammar is known, else from `poll` or `tick`.

        Returns a function after which it is not called. A grammar that no request waits for any
        more is not checked.
        """
        digest = _digest(grammar)
        if digest in self._refusals:
            self._refusals.move_to_end(digest)
            on_checked(self._refusals[digest])
            return _do_nothing
        check = self._checks.setdefault(digest, _Check(grammar, digest))
        check.callbacks.append(on_checked)
        if not check.has_begun and not _has_entry(check, lane):
            entry = _Entry(check, lane)
            check.entries.append(entry)
            self._to_check.add(entry, lane)
            self._check_next()
        return lambda: self._forget(check, on_checked)

    @property
    def fullness(self) -> float:
        grown_bytes = sum(work.checker.grown_bytes for work in self._works)
        return (self._past_bytes + grown_bytes) / _MAX_COMPILED_BYTES

    def tick(self) -> None:
        """End checkers that take too long, or are idle. Called in every iteration of the loop."""
        for work in list(self._works):
            checker, check = work.checker, work.check
            if check is not None and checker.is_too_late():
                reason = self._reason_of_delay(work)
                self._end_checker(work)
                self._settle(check, reason, CHECK_TIMEOUT_S)
            elif check is None and len(self._works) > 1 and work.is_long_idle:
                self._end_checker(work)

    def _reason_of_delay(self, work: _Work) -> str:
        if not work.checker.is_ready or work.check is None:
            return _NO_CHECKER
        # On a busy machine the clock alone is no verdict.
        has_tried = work.checker.used_s() > CHECK_TIMEOUT_S
        is_costly = has_tried and is_too_much(work.check.grammar, self._vocab_size)
        return _TOO_COSTLY if is_costly else _TOO_SLOW

    def close(self) -> None:
        for work in list(self._works):
            self._end_checker(work)
        self._compiler.close()

    def _forget(self, check: _Check, on_checked: OnChecked) -> None:
        if on_checked in check.callbacks:
            check.callbacks.remove(on_checked)
        if not check.callbacks and not check.has_begun:
            for entry in check.entries:
                self._to_check.discard(entry)
            self._checks.pop(check.digest, None)

    def _check_next(self) -> None:
        while len(self._to_check):
            idle = next((work for work in self._works if work.check is None), None)
            if idle is None and len(self._works) >= self._max_checkers:
                return
            entry = self._to_check.pop_except(self._lanes_without_turn())
            if entry is None:
                return
            self._begin(entry.check, entry.lane, idle)

    def _lanes_without_turn(self) -> set[Lane]:
        busy = Counter(work.check.lane for work in self._works if work.check is not None)
        return {lane for lane, num in busy.items() if num >= max(1, self._max_checkers - 1)}

    def _begin(self, check: _Check, lane: Lane, idle: _Work | None) -> None:
        check.has_begun, check.lane = True, lane
        for entry in check.entries:
            self._to_check.discard(entry)
        if idle is not None:
            idle.check = check
            self._send(idle)
            return
        work = _Work(Checker(self._folder, self._vocab_size), check)
        self._works.append(work)
        self._server.watch(work.checker.connection.fileno(), lambda: self._receive(work))

    def _send(self, work: _Work) -> None:
        assert work.check is not None
        try:
            work.checker.send(work.check.grammar)
        except OSError:
            self._lose_checker(work)

    def _receive(self, work: _Work) -> None:
        checker = work.checker
        try:
            refusal = checker.receive()
        except (EOFError, OSError):
            self._lose_checker(work)
            return
        if not checker.is_ready:
            checker.is_ready = True
            self._send(work)
            return
        check, work.check = work.check, None
        work.idle_since = time.monotonic()
        assert check is not None
        used_s = checker.used_s()
        if checker.is_large():
            self._end_checker(work)
        self._settle(check, refusal, used_s)

    def _settle(self, check: _Check, refusal: str | None, used_s: float) -> None:
        self._to_check.charge(check.lane, used_s - _EXPECTED_S)
        if refusal is None:
            self._to_compile.add(check, check.lane)
            self._compile_next()
        else:
            self._conclude(check, refusal)
        self._check_next()

    def _compile_next(self) -> None:
        if self._is_compiling or not len(self._to_compile):
            return
        self._is_compiling = True
        check, began_at = self._to_compile.pop(), time.monotonic()

        def on_compiled(refusal: str | None) -> None:
            self._is_compiling = False
            used_s = time.monotonic() - began_at
            self._to_compile.charge(check.lane, used_s - _EXPECTED_S)
            self._conclude(check, refusal)
            self._compile_next()

        self._compiler.compile(check.grammar, on_compiled)

    def _conclude(self, check: _Check, refusal: str | None) -> None:
        """Remember the result and call back all requests with this grammar."""
        if refusal not in UNDECIDED:
            self._refusals[check.digest] = None if refusal is None else refusal[:_MAX_REASON_CHARS]
        if len(self._refusals) > _MAX_REMEMBERED:
            self._refusals.popitem(last=False)
        del self._checks[check.digest]
        for on_checked in check.callbacks.copy():
            on_checked(refusal)

    def _lose_checker(self, work: _Work) -> None:
        """The checker died, perhaps of its grammar, which another one tries once more."""
        check = work.check
        status = self._end_checker(work)
        log.warning("a grammar checker ended", extra={"fields": {"status": status}})
        if check is None:
            return
        if check.was_lost:
            refusal = _CHECKER_DIED if status in _CRASHES else _CHECKER_LOST
            self._settle(check, refusal, CHECK_TIMEOUT_S)
            return
        check.was_lost = True
        self._to_check.charge(check.lane, CHECK_TIMEOUT_S - _EXPECTED_S)
        self._begin(check, check.lane, None)

    def _end_checker(self, work: _Work) -> int:
        self._works.remove(work)
        self._server.unwatch(work.checker.connection.fileno())
        self._past_bytes += work.checker.grown_bytes
        return work.checker.end()


def _has_entry(check: _Check, lane: Lane) -> bool:
    return any(entry.lane == lane for entry in check.entries)


def _digest(grammar: GrammarSpec) -> bytes:
    return sha256(f"{grammar.kind}\0{grammar.source}".encode(errors="surrogatepass")).digest()


def _do_nothing() -> None:
    """Forget a grammar that is known."""
