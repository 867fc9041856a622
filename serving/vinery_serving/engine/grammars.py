"""Checks and compiles grammars without stopping the step loop.

First a checker, a process with a canary, tries a new grammar. Then `SharedCompiler` compiles it on
a thread, with a canary that shares the pipeline's tokenizer: GenAI keeps compiled grammars with the
tokenizer for as long as it lives, and releases the GIL while it compiles. The growth of all
checkers shows how much the engine's own tokenizer holds, and when the engine must be replaced.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from vinery_serving.engine.canary import CHECK_TIMEOUT_S, Canary, Checked
from vinery_serving.engine.checkers import MESSAGE
from vinery_serving.engine.fair_queue import FairQueue, Lane
from vinery_serving.engine.supervision import PipelineBroken
from vinery_serving.processes.child import ChildProcess
from vinery_serving.transport.messages import GrammarSpec
from vinery_serving.transport.server import SocketServer

log = logging.getLogger(__name__)

# Gets the reason why a grammar is refused; None: it can be used.
OnChecked = Callable[[str | None], None]

_MAX_CLOCK_S: Final = 10.0
_START_TIMEOUT_S: Final = 30.0
# How much a checker may grow before it is replaced, which takes a second.
_MAX_CHECKER_BYTES: Final = 256 * 2**20
_MAX_CHECKERS: Final = 4  # more would take memory, and the engine needs the cores too
_MAX_IDLE_S: Final = 60.0  # a further checker that had nothing to do for so long is ended
# New grammars of one lane. Each is some kilobytes; known ones do not wait.
_MAX_WAITING_OF_LANE: Final = 64
_EXPECTED_S: Final = 0.02  # the charge of a grammar until its time is known
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
# The exit statuses of a process that crashes by itself.
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


@dataclass(eq=False, slots=True)
class _Check:
    grammar: GrammarSpec
    digest: bytes
    callbacks: list[OnChecked] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)  # that have asked, each with a turn
    lane: Lane = (0, 0)  # that pays
    has_begun: bool = False
    was_lost: bool = False  # with its checker


class Checkers:
    """The process that starts and ends checkers, see `engine.checkers`. An engine starts it before
    its own confinement."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self.control, other = socket.socketpair()
        self.control.settimeout(_MAX_CLOCK_S)
        with other:
            fd = other.fileno()
            words = ("vinery_serving.engine.checkers", folder, tempfile.gettempdir(), fd)
            command = (sys.executable, "-m", *map(str, words), str(os.getpid()))
            self._process = ChildProcess(command, "checkers", fds=(fd,), leads_group=False)

    def ask(self, number: int, vocab_size: int = 0, *fds: int) -> int:
        """Start a checker, which gets the descriptor, or end one and return its exit status. Raises
        `PipelineBroken` if the process has ended."""
        try:
            socket.send_fds(self.control, [MESSAGE.pack(number, vocab_size)], fds)
            answer = MESSAGE.pack(0, 0) if fds else self.control.recv(MESSAGE.size)
            return int(MESSAGE.unpack(answer)[1])
        except (OSError, struct.error):
            raise PipelineBroken("no checkers of grammars can be started") from None


class Checker:
    """A process with a canary. GenAI keeps every compiled grammar (2026.4.1): an object of six
    members takes 60 KiB with a vocabulary of 3,000 tokens, and 1.4 MiB with 150,000. So a checker
    that has grown is replaced."""

    def __init__(self, checkers: Checkers, vocab_size: int) -> None:
        self.connection, other = Pipe()
        with other:
            checkers.ask(self.connection.fileno(), vocab_size, other.fileno())
        self._checkers = checkers
        self.check: _Check | None = None
        self.idle_since = 0.0
        self.is_ready = False  # has sent its first message
        self._sent_at = time.monotonic()  # the newest grammar; at first: of the start
        self.used_s = 0.0  # CPU time of the last grammar
        self._base_bytes = 0  # its memory after the first grammar
        self.grown_bytes = 0  # growth since then

    def send(self, grammar: GrammarSpec) -> None:
        """Raises OSError if the process has died."""
        self._sent_at = time.monotonic()
        self.connection.send_bytes(msgspec.msgpack.encode(grammar))

    def receive(self) -> str | None:
        """Return why the grammar is refused. Raises EOFError, OSError or MsgspecError if the
        process has died, or was taken over."""
        answer = self.connection.recv_bytes(2**24)
        refusal, used_s, num_bytes = msgspec.msgpack.decode(answer, type=Checked)
        self.used_s = min(max(0.0, used_s), CHECK_TIMEOUT_S)
        if self.is_ready:
            self._base_bytes = self._base_bytes or num_bytes
            self.grown_bytes = max(self.grown_bytes, num_bytes - self._base_bytes)
        return refusal

    def is_too_late(self) -> bool:
        most_s = _MAX_CLOCK_S if self.is_ready else _START_TIMEOUT_S
        return time.monotonic() - self._sent_at > most_s

    @property
    def is_long_idle(self) -> bool:
        return time.monotonic() - self.idle_since > _MAX_IDLE_S

    def end(self) -> int:
        """Return the exit status, negative for a signal, also of a process that ended before."""
        with self.connection:
            return self._checkers.ask(self.connection.fileno())


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


class GrammarChecks:
    """Checks and compiles grammars, of each lane in turn, and remembers the results. Nothing here
    waits. A lane is charged the time of its checks, and never has all turns."""

    def __init__(
        self,
        starter: Checkers,
        vocab_size: int,
        server: SocketServer,
        compiler: SharedCompiler,
        *,
        max_checkers: int | None = None,
    ) -> None:
        """`compiler` compiles each approved grammar before its requests are called back."""
        self._starter = starter
        self._vocab_size = vocab_size
        self._server = server
        self._compiler = compiler
        self._max_checkers = max_checkers or min(_MAX_CHECKERS, max(2, os.cpu_count() or 1))
        self._refusals: OrderedDict[bytes, str | None] = OrderedDict()  # by digest
        self._checks: dict[bytes, _Check] = {}  # by digest, until they are concluded
        self._to_check: FairQueue[tuple[_Check, Lane]] = FairQueue(lambda _: _EXPECTED_S)
        self._checkers: list[Checker] = []
        self._past_bytes = 0  # how much earlier checkers had grown

    def has_room(self, grammar: GrammarSpec, lane: Lane) -> bool:
        digest = _digest(grammar)
        if digest in self._refusals or self._to_check.num_of(lane) < _MAX_WAITING_OF_LANE:
            return True
        check = self._checks.get(digest)
        return check is not None and (check.has_begun or lane in check.lanes)

    def check(
        self, grammar: GrammarSpec, on_checked: OnChecked, lane: Lane = (0, 0)
    ) -> Callable[[], None]:
        """Call `on_checked`, at once if the grammar is known, else from `poll` or `tick`. Returns a
        function that withdraws the callback. A grammar is not checked when no request waits any
        more."""
        digest = _digest(grammar)
        if digest in self._refusals:
            self._refusals.move_to_end(digest)
            on_checked(self._refusals[digest])
            return lambda: None
        check = self._checks.setdefault(digest, _Check(grammar, digest))
        check.callbacks.append(on_checked)
        if not check.has_begun and lane not in check.lanes:
            check.lanes.append(lane)
            self._to_check.add((check, lane), lane)
            self._check_next()
        return lambda: self._forget(check, on_checked)

    @property
    def fullness(self) -> float:
        grown_bytes = sum(each.grown_bytes for each in self._checkers)
        return (self._past_bytes + grown_bytes) / _MAX_COMPILED_BYTES

    def tick(self) -> None:
        """End checkers that take too long, or are idle. Called in every iteration of the loop."""
        for checker in list(self._checkers):
            check = checker.check
            if check is not None and checker.is_too_late():
                reason = _TOO_SLOW if checker.is_ready else _NO_CHECKER
                self._end_checker(checker)
                self._settle(check, reason, CHECK_TIMEOUT_S)
            elif check is None and len(self._checkers) > 1 and checker.is_long_idle:
                self._end_checker(checker)

    def close(self) -> None:
        for checker in list(self._checkers):
            self._end_checker(checker)
        self._compiler.close()

    def _forget(self, check: _Check, on_checked: OnChecked) -> None:
        if on_checked in check.callbacks:
            check.callbacks.remove(on_checked)
        if not check.callbacks and not check.has_begun:
            self._take_turns(check)
            self._checks.pop(check.digest, None)

    def _take_turns(self, check: _Check) -> None:
        for lane in check.lanes:
            self._to_check.discard((check, lane))

    def _check_next(self) -> None:
        """A grammar has its turn until it is compiled, so few wait for the compiler."""
        while len(self._to_check):
            begun = Counter(each.lane for each in self._checks.values() if each.has_begun)
            if begun.total() >= self._max_checkers:
                return
            most = max(1, self._max_checkers - 1)
            turn = self._to_check.pop_except({lane for lane, num in begun.items() if num >= most})
            if turn is None:
                return
            idle = next((each for each in self._checkers if each.check is None), None)
            self._begin(*turn, idle)

    def _begin(self, check: _Check, lane: Lane, idle: Checker | None) -> None:
        check.has_begun, check.lane = True, lane
        self._take_turns(check)
        checker = idle or Checker(self._starter, self._vocab_size)
        checker.check = check
        if idle is not None:
            self._send(idle)
            return
        self._checkers.append(checker)
        self._server.watch(checker.connection.fileno(), lambda: self._receive(checker))

    def _send(self, checker: Checker) -> None:
        assert checker.check is not None
        try:
            checker.send(checker.check.grammar)
        except OSError:
            self._lose_checker(checker)

    def _receive(self, checker: Checker) -> None:
        try:
            refusal = checker.receive()
        except (EOFError, OSError, msgspec.MsgspecError):
            self._lose_checker(checker)
            return
        if not checker.is_ready:
            checker.is_ready = True
            self._send(checker)
            return
        check, checker.check = checker.check, None
        checker.idle_since = time.monotonic()
        assert check is not None
        if checker.grown_bytes > _MAX_CHECKER_BYTES:
            self._end_checker(checker)
        self._settle(check, refusal, checker.used_s)

    def _settle(self, check: _Check, refusal: str | None, used_s: float) -> None:
        self._to_check.charge(check.lane, used_s - _EXPECTED_S)
        if refusal is None:
            self._compiler.compile(check.grammar, partial(self._conclude, check))
        else:
            self._conclude(check, refusal)

    def _conclude(self, check: _Check, refusal: str | None) -> None:
        """Remember the result and call back all requests with this grammar."""
        if refusal not in UNDECIDED:
            self._refusals[check.digest] = None if refusal is None else refusal[:_MAX_REASON_CHARS]
        if len(self._refusals) > _MAX_REMEMBERED:
            self._refusals.popitem(last=False)
        del self._checks[check.digest]
        for on_checked in check.callbacks.copy():
            on_checked(refusal)
        self._check_next()

    def _lose_checker(self, checker: Checker) -> None:
        """The checker died, perhaps of its grammar, which another checker tries once more."""
        check = checker.check
        status = self._end_checker(checker)
        if check is not None and status == -signal.SIGPROF:
            self._settle(check, _TOO_COSTLY, CHECK_TIMEOUT_S)
            return
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

    def _end_checker(self, checker: Checker) -> int:
        self._checkers.remove(checker)
        self._server.unwatch(checker.connection.fileno())
        self._past_bytes += checker.grown_bytes
        return checker.end()


def _digest(grammar: GrammarSpec) -> bytes:
    return sha256(f"{grammar.kind}\0{grammar.source}".encode(errors="surrogatepass")).digest()
