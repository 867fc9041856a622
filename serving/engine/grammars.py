"""Checks and compiles grammars without stopping the step loop.

A new grammar goes through two stages. First the checker, a process with a canary, tries it. The
process is killed if the grammar is too costly. Then `SharedCompiler` compiles it on a thread, with
a canary that shares the pipeline's tokenizer. GenAI keeps compiled grammars with the tokenizer, so
the pipeline's step finds the grammar compiled. GenAI releases the GIL while it compiles.

GenAI keeps every compiled grammar for as long as its tokenizer lives (2026.4.1): 60 KiB for an
object of six members with a vocabulary of 3,000 tokens, 0.3 MiB with 32,000 and 1.4 MiB with
150,000. So a checker that has grown large is replaced. The growth of all checkers shows how much
the engine's own tokenizer holds, and when the engine must be replaced.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL
from typing import Any, Final

import msgspec
import psutil

from serving.engine.canary import Canary
from serving.transport.messages import GrammarSpec
from serving.transport.server import SocketServer

# Gets the reason why a grammar is refused; None: it can be used.
OnChecked = Callable[[str | None], None]

# CPU seconds of the checker: on a busy machine an ordinary grammar takes longer by the clock.
CHECK_TIMEOUT_S: Final = 2.0
_MAX_CLOCK_S: Final = 10.0
_START_TIMEOUT_S: Final = 30.0
_MAX_REMEMBERED: Final = 1024
# How much a checker may grow before it is replaced, which takes a second.
_MAX_CHECKER_BYTES: Final = 256 * 2**20
# How much the engine's tokenizer may hold: 750 grammars with the largest vocabularies, more than
# 10,000 with small ones.
_MAX_COMPILED_BYTES: Final = 2**30
_TOO_COSTLY: Final = (
    f"it takes longer than {CHECK_TIMEOUT_S:g} s to compile; use fewer alternatives or "
    "smaller repetition bounds"
)
_NO_CHECKER: Final = "the grammar compiler does not start on this machine"
_CHECKER_DIED: Final = "the grammar compiler could not handle it"


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
        """Call `on_compiled` from a later `poll` of the server."""
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
        self._work_dir = tempfile.TemporaryDirectory(prefix="vinery-compiler-")
        try:
            return Canary(self._tokenizer, self._vocab_size, Path(self._work_dir.name))
        except (RuntimeError, ValueError):
            return None


class GrammarChecks:
    """Checks grammars one at a time, in order, and remembers the results. Nothing here waits."""

    def __init__(
        self, folder: Path, vocab_size: int, server: SocketServer, compiler: SharedCompiler
    ) -> None:
        """`compiler` compiles each approved grammar before its requests are called back."""
        self._folder = folder
        self._vocab_size = vocab_size
        self._server = server
        self._compiler = compiler
        self._refusals: OrderedDict[GrammarSpec, str | None] = OrderedDict()
        self._callbacks: dict[GrammarSpec, list[OnChecked]] = {}
        self._to_check: deque[GrammarSpec] = deque()
        self._checker: _Checker | None = None
        self._is_waiting = False  # for the checker's start, or its answer to the first grammar
        self._past_bytes = 0  # how much earlier checkers had grown

    def check(self, grammar: GrammarSpec, on_checked: OnChecked) -> None:
        """Call `on_checked`, at once if the grammar is known, else from `poll` or `tick`."""
        if grammar in self._refusals:
            self._refusals.move_to_end(grammar)
            on_checked(self._refusals[grammar])
        elif grammar in self._callbacks:
            self._callbacks[grammar].append(on_checked)
        else:
            self._callbacks[grammar] = [on_checked]
            self._to_check.append(grammar)
            self._check_next()

    @property
    def fullness(self) -> float:
        """The memory of the engine's compiled grammars, as a part of what it may be."""
        grown_bytes = 0 if self._checker is None else self._checker.grown_bytes
        return (self._past_bytes + grown_bytes) / _MAX_COMPILED_BYTES

    def tick(self) -> None:
        """Kill a checker that takes too long. Called in every iteration of the loop."""
        checker = self._checker
        if self._is_waiting and checker is not None and checker.is_too_late():
            self._end_checker()
            self._settle(_TOO_COSTLY if checker.is_ready else _NO_CHECKER)

    def close(self) -> None:
        self._end_checker()
        self._compiler.close()

    def _check_next(self) -> None:
        if self._is_waiting or not self._to_check:
            return
        self._is_waiting = True
        if self._checker is None:
            self._checker = _Checker(self._folder, self._vocab_size)
            self._server.watch(self._checker.connection.fileno(), self._receive)
        else:
            self._send(self._checker)

    def _send(self, checker: _Checker) -> None:
        try:
            checker.send(self._to_check[0])
        except OSError:
            self._lose_checker()

    def _receive(self) -> None:
        checker = self._checker
        assert checker is not None
        try:
            refusal = checker.receive()
        except (EOFError, OSError):
            self._lose_checker()
            return
        if not checker.is_ready:
            checker.is_ready = True
            self._send(checker)
            return
        if checker.is_large():
            self._end_checker()
        self._settle(refusal)

    def _settle(self, refusal: str | None) -> None:
        """Take the checker's answer to the first grammar."""
        grammar = self._to_check.popleft()
        self._is_waiting = False
        if refusal is None:
            self._compiler.compile(grammar, lambda reason: self._conclude(grammar, reason))
        else:
            self._conclude(grammar, refusal)
        self._check_next()

    def _conclude(self, grammar: GrammarSpec, refusal: str | None) -> None:
        """Remember the result and call back all requests with this grammar."""
        if refusal != _NO_CHECKER:
            self._refusals[grammar] = refusal
        if len(self._refusals) > _MAX_REMEMBERED:
            self._refusals.popitem(last=False)
        for on_checked in self._callbacks.pop(grammar):
            on_checked(refusal)

    def _lose_checker(self) -> None:
        """The checker died, most probably of this grammar."""
        self._end_checker()
        if self._to_check:
            self._settle(_CHECKER_DIED)

    def _end_checker(self) -> None:
        checker, self._checker = self._checker, None
        if checker is not None:
            self._server.unwatch(checker.connection.fileno())
            checker.end()
            self._past_bytes += checker.grown_bytes


class _Checker:
    """The process with the canary (`serving.engine.canary`)."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self.connection, other = Pipe()
        command = (sys.executable, "-m", "serving.engine.canary", str(folder), str(vocab_size))
        with other:
            fd = other.fileno()
            self._process = psutil.Popen([*command, str(fd)], stdin=DEVNULL, pass_fds=(fd,))
        self.is_ready = False  # whether it has sent its first message
        self._sent_at = time.monotonic()  # the newest grammar; at first: of the start
        self._cpu_at_s = 0.0  # the process's CPU seconds at that time
        self._base_bytes: int | None = None  # its memory after its first grammar
        self.grown_bytes = 0  # how much it has grown since

    def send(self, grammar: GrammarSpec) -> None:
        """Raises OSError if the process has died."""
        self._sent_at, self._cpu_at_s = time.monotonic(), self._cpu_s()
        self.connection.send_bytes(msgspec.msgpack.encode(grammar))

    def receive(self) -> str | None:
        """Return why the grammar is refused. Raises EOFError or OSError if the process died."""
        return msgspec.msgpack.decode(self.connection.recv_bytes(), type=str | None)

    def is_too_late(self) -> bool:
        elapsed_s = time.monotonic() - self._sent_at
        if not self.is_ready:
            return elapsed_s > _START_TIMEOUT_S
        if elapsed_s <= CHECK_TIMEOUT_S:
            return False
        return elapsed_s > _MAX_CLOCK_S or self._cpu_s() - self._cpu_at_s > CHECK_TIMEOUT_S

    def is_large(self) -> bool:
        """Whether it has grown too much since its first grammar, which needs tables of its own."""
        num_bytes: int = self._process.memory_info().rss
        if self._base_bytes is None:
            self._base_bytes = num_bytes
        self.grown_bytes = max(self.grown_bytes, num_bytes - self._base_bytes)
        return self.grown_bytes > _MAX_CHECKER_BYTES

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)
