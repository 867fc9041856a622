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
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec
import psutil

from serving.engine.canary import Canary, Check, Checked
from serving.transport.framing import FrameReader, pack
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
        self._requests: SimpleQueue[tuple[GrammarSpec, OnChecked] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[OnChecked, str | None]] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._thread: threading.Thread | None = None  # started with the first grammar
        server.watch(self._wake_read, self._receive)

    def compile(self, grammar: GrammarSpec, on_compiled: OnChecked) -> None:
        """Call `on_compiled` from a later `poll` of the server."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="grammars", daemon=True)
            self._thread.start()
        self._requests.put((grammar, on_compiled))

    def close(self) -> None:
        """Call back no more. The thread ends after its present grammar."""
        self._requests.put(None)
        self._server.unwatch(self._wake_read)

    def _receive(self) -> None:
        os.read(self._wake_read, 1024)
        while not self._results.empty():
            on_compiled, refusal = self._results.get()
            on_compiled(refusal)

    def _work(self) -> None:
        with tempfile.TemporaryDirectory(prefix="vinery-compiler-") as work_dir:
            try:
                canary = Canary(self._tokenizer, self._vocab_size, Path(work_dir))
            except (RuntimeError, ValueError):
                canary = None  # the tokenizer cannot be shared: the step compiles
            while (request := self._requests.get()) is not None:
                grammar, on_compiled = request
                refusal = None if canary is None else canary.refusal(grammar)
                self._results.put((on_compiled, refusal))
                os.write(self._wake_write, b".")


class GrammarChecks:
    """Checks grammars one at a time, in order, and remembers the results.

    The loop calls `check` and goes on stepping. Nothing here waits.
    """

    def __init__(
        self,
        folder: Path,
        vocab_size: int,
        server: SocketServer,
        compiler: SharedCompiler | None = None,
    ) -> None:
        """`compiler` compiles each approved grammar before its requests are called back."""
        self._folder = folder
        self._vocab_size = vocab_size
        self._server = server
        self._compiler = compiler
        self._refusals: OrderedDict[GrammarSpec, str | None] = OrderedDict()
        self._callbacks: dict[GrammarSpec, list[OnChecked]] = {}
        self._to_check: deque[GrammarSpec] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers_fd = -1  # a pipe from the checker
        self._frames = FrameReader()
        self._is_ready = False
        self._sent_at: float | None = None  # monotonic; None: the checker is idle
        self._cpu_at_s = 0.0  # the checker's CPU seconds at that time
        self._base_bytes: int | None = None  # the checker's memory after its first grammar
        self._grown_bytes = 0  # how much this checker has grown since
        self._past_bytes = 0  # how much the checkers before it had grown

    def check(self, grammar: GrammarSpec, on_checked: OnChecked) -> None:
        """Call `on_checked`, at once if the grammar is known, else from `poll` or `tick`."""
        if grammar in self._refusals:
            self._refusals.move_to_end(grammar)
            on_checked(self._refusals[grammar])
            return
        if grammar in self._callbacks:
            self._callbacks[grammar].append(on_checked)
            return
        self._callbacks[grammar] = [on_checked]
        self._to_check.append(grammar)
        self._check_next()

    @property
    def fullness(self) -> float:
        """The memory of the engine's compiled grammars, as a part of what it may be."""
        if self._compiler is None:
            return 0.0
        return (self._past_bytes + self._grown_bytes) / _MAX_COMPILED_BYTES

    def tick(self) -> None:
        """Kill a checker that takes too long. Called in every iteration of the loop."""
        if self._sent_at is None:
            return
        if self._is_too_late(time.monotonic() - self._sent_at):
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
        """Return the checker's CPU seconds since its start."""
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the checker and the compiler."""
        self._end_checker()
        if self._compiler is not None:
            self._compiler.close()

    def _check_next(self) -> None:
        if self._sent_at is not None or not self._to_check:
            return
        self._sent_at = time.monotonic()
        if self._process is None:
            self._start_checker()
        elif self._is_ready:
            self._send(self._to_check[0])

    def _start_checker(self) -> None:
        self._answers_fd, write_fd = os.pipe()
        command = [sys.executable, "-m", "serving.engine.canary"]
        self._process = subprocess.Popen(
            [*command, str(self._folder), str(self._vocab_size), str(write_fd)],
            stdin=subprocess.PIPE,
            pass_fds=(write_fd,),
        )
        os.close(write_fd)
        self._frames, self._is_ready = FrameReader(), False
        self._server.watch(self._answers_fd, self._receive)

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
        received = os.read(self._answers_fd, 1 << 16)
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
        self._sent_at = time.monotonic()
        if self._to_check:
            self._send(self._to_check[0])

    def _is_large(self) -> bool:
        """Whether the checker must be replaced.

        Its first grammar does not count: it comes with tables as large as the vocabulary.
        """
        assert self._process is not None
        num_bytes: int = psutil.Process(self._process.pid).memory_info().rss
        if self._base_bytes is None:
            self._base_bytes = num_bytes
        self._grown_bytes = max(self._grown_bytes, num_bytes - self._base_bytes)
        return self._grown_bytes > _MAX_CHECKER_BYTES

    def _settle(self, refusal: str | None) -> None:
        """Take the checker's answer to the first grammar."""
        grammar = self._to_check.popleft()
        self._sent_at = None
        if refusal is None and self._compiler is not None:
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
        if self._process is not None:
            assert self._process.stdin is not None
            self._server.unwatch(self._answers_fd)
            self._process.kill()
            self._process.wait()
            os.close(self._answers_fd)
            self._process.stdin.close()
            self._process = None
            self._sent_at = None
            self._base_bytes = None
            self._past_bytes += self._grown_bytes
            self._grown_bytes = 0
