"""Keeps verdicts on grammars, and a checker process to get new ones from.

Nothing here waits: the loop calls `ask`, goes on stepping, and is called back when the
verdict is there. A grammar that takes too long is refused, and the checker with it killed.
What is not refused is compiled once more, for the pipeline, before it may enter a step.

GenAI keeps every compiled grammar for as long as its tokenizer lives, and has no way to let
go of one: 60 KiB for an object of six members with a vocabulary of 3,000 tokens, 0.3 MiB
with 32,000 and 1.4 MiB with 150,000 (2026.4.1). So a checker that has grown large is replaced
by a new one; and by what all checkers have grown the engine knows what its own tokenizer
holds, and when it is time for the engine itself to be replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from serving.engine.checker import Check, Checked
from serving.engine.compiling import SharedCompiler
from serving.transport.framing import FrameReader, pack
from serving.transport.messages import GrammarSpec
from serving.transport.server import SocketServer

Answer = Callable[[str | None], None]

# Of the checker's own computing: on a busy machine a fair grammar takes longer by the clock.
CHECK_TIMEOUT_S: Final = 2.0
_MAX_CLOCK_S: Final = 10.0
_START_TIMEOUT_S: Final = 30.0
_MAX_VERDICTS: Final = 1024
# How much a checker may grow before it is replaced, which takes a second.
_MAX_CHECKER_BYTES: Final = 256 * 2**20
# How much the engine's own tokenizer may hold: 750 grammars with the largest vocabularies,
# and more than 10,000 with small ones.
_MAX_COMPILED_BYTES: Final = 2**30
_TOO_COSTLY: Final = (
    f"it takes longer than {CHECK_TIMEOUT_S:g} s to compile; use fewer alternatives or "
    "smaller repetition bounds"
)

_NO_CHECKER: Final = "the grammar compiler does not start on this machine"


class GrammarChecks:
    """One grammar at a time goes to the checker; the rest wait in order."""

    def __init__(
        self,
        folder: Path,
        vocab_size: int,
        server: SocketServer,
        compiler: SharedCompiler | None = None,
    ) -> None:
        """`compiler` gets what the checker has approved, before anybody is told."""
        self._folder = folder
        self._vocab_size = vocab_size
        self._server = server
        self._compiler = compiler
        self._verdicts: OrderedDict[GrammarSpec, str | None] = OrderedDict()
        self._waiting: dict[GrammarSpec, list[Answer]] = {}
        self._to_check: deque[GrammarSpec] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._frames = FrameReader()
        self._is_ready = False
        self._asked_at: float | None = None  # monotonic, of what is awaited now
        self._cpu_at_s = 0.0  # what the checker had computed when it was asked
        self._base_bytes: int | None = None  # the checker's memory after its first grammar
        self._grown_bytes = 0  # by how much the checker has grown since, and those before it
        self._past_bytes = 0

    def ask(self, grammar: GrammarSpec, answer: Answer) -> None:
        """Call `answer` with the reason why the grammar is refused, or None: at once when
        it is known, else from a later `poll` of the server or `tick`."""
        if grammar in self._verdicts:
            self._verdicts.move_to_end(grammar)
            answer(self._verdicts[grammar])
            return
        if grammar in self._waiting:
            self._waiting[grammar].append(answer)
            return
        self._waiting[grammar] = [answer]
        self._to_check.append(grammar)
        self._ask_next()

    @property
    def fullness(self) -> float:
        """What the engine's tokenizer holds of compiled grammars, in parts of what it may."""
        if self._compiler is None:
            return 0.0
        return (self._past_bytes + self._grown_bytes) / _MAX_COMPILED_BYTES

    def tick(self) -> None:
        """Give up on a checker that takes too long. Call it often."""
        if self._asked_at is None:
            return
        elapsed_s = time.monotonic() - self._asked_at
        if self._is_too_late(elapsed_s):
            reason = _TOO_COSTLY if self._is_ready else _NO_CHECKER
            self._end_checker()
            self._settle(reason)

    def _is_too_late(self, elapsed_s: float) -> bool:
        if not self._is_ready:
            return elapsed_s > _START_TIMEOUT_S
        if elapsed_s <= CHECK_TIMEOUT_S:
            return False
        return elapsed_s > _MAX_CLOCK_S or self._cpu_s() - self._cpu_at_s > CHECK_TIMEOUT_S

    def _cpu_s(self) -> float:
        """What the checker has computed since its start, in seconds of one core."""
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the checker and the compiler."""
        self._end_checker()
        if self._compiler is not None:
            self._compiler.close()

    def _ask_next(self) -> None:
        if self._asked_at is not None or not self._to_check:
            return
        self._asked_at = time.monotonic()
        if self._process is None:
            self._start_checker()
        elif self._is_ready:
            self._send(self._to_check[0])

    def _start_checker(self) -> None:
        command = [sys.executable, "-m", "serving.engine.checker"]
        self._process = subprocess.Popen(
            [*command, str(self._folder), str(self._vocab_size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._frames, self._is_ready = FrameReader(), False
        self._server.watch(self._process.stdout.fileno(), self._receive)

    def _send(self, grammar: GrammarSpec) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._cpu_at_s = self._cpu_s()
        try:
            self._process.stdin.write(pack(Check(grammar)))
            self._process.stdin.flush()
        except OSError:
            self._lose_checker()

    def _receive(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        received = os.read(self._process.stdout.fileno(), 1 << 16)
        if not received:
            self._lose_checker()
            return
        for frame in self._frames.feed(received):
            self._take(msgspec.msgpack.decode(frame, type=Checked))

    def _take(self, checked: Checked) -> None:
        if self._is_ready:
            if self._is_large():
                self._end_checker()
            self._settle(checked.refusal)
            return
        self._is_ready = True
        self._asked_at = time.monotonic()
        if self._to_check:
            self._send(self._to_check[0])

    def _is_large(self) -> bool:
        """Whether the checker has grown too large. Its first grammar comes with tables that
        are as large as the vocabulary, and made once."""
        assert self._process is not None
        num_bytes: int = psutil.Process(self._process.pid).memory_info().rss
        if self._base_bytes is None:
            self._base_bytes = num_bytes
        self._grown_bytes = max(self._grown_bytes, num_bytes - self._base_bytes)
        return self._grown_bytes > _MAX_CHECKER_BYTES

    def _settle(self, refusal: str | None) -> None:
        """The checker's word on the first grammar."""
        grammar = self._to_check.popleft()
        self._asked_at = None
        if refusal is None and self._compiler is not None:
            self._compiler.compile(grammar, lambda found: self._conclude(grammar, found))
        else:
            self._conclude(grammar, refusal)
        self._ask_next()

    def _conclude(self, grammar: GrammarSpec, refusal: str | None) -> None:
        """The verdict, for all that ask the same."""
        if refusal != _NO_CHECKER:
            self._verdicts[grammar] = refusal
        if len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        for answer in self._waiting.pop(grammar):
            answer(refusal)

    def _lose_checker(self) -> None:
        """It died: of this grammar, as far as anybody can tell."""
        self._end_checker()
        if self._to_check:
            self._settle("the grammar compiler could not handle it")

    def _end_checker(self) -> None:
        if self._process is not None:
            assert self._process.stdout is not None
            assert self._process.stdin is not None
            self._server.unwatch(self._process.stdout.fileno())
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process.stdin.close()
            self._process = None
            self._asked_at = None
            self._base_bytes = None
            self._past_bytes += self._grown_bytes
            self._grown_bytes = 0
