"""One process that tries grammars on the canary (`engine/canary`), and its limits.

GenAI keeps every compiled grammar for as long as its tokenizer lives (2026.4.1): 60 KiB for an
object of six members with a vocabulary of 3,000 tokens, 0.3 MiB with 32,000 and 1.4 MiB with
150,000. So a checker that has grown large is replaced.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Final

import msgspec
import psutil

from vinery_serving.processes.child import ChildProcess
from vinery_serving.transport.messages import GrammarSpec

# CPU seconds of the checker: on a busy machine an ordinary grammar takes longer by the clock.
CHECK_TIMEOUT_S: Final = 2.0
_MAX_CLOCK_S: Final = 10.0
_START_TIMEOUT_S: Final = 30.0
# How much a checker may grow before it is replaced, which takes a second.
_MAX_CHECKER_BYTES: Final = 256 * 2**20


class Checker:
    def __init__(self, folder: Path, vocab_size: int) -> None:
        self.connection, other = Pipe()
        module = "vinery_serving.engine.canary"
        command = (sys.executable, "-m", module, str(folder), str(vocab_size))
        with other:
            fd = other.fileno()
            ends = (str(fd), str(os.getpid()))
            self._process = ChildProcess(
                (*command, *ends), "the checker of grammars", fds=(fd,), leads_group=False
            )
        self._use = psutil.Process(self._process.pid)
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
        return elapsed_s > _MAX_CLOCK_S or self.used_s() > CHECK_TIMEOUT_S

    def is_large(self) -> bool:
        num_bytes: int = self._use.memory_info().rss
        if self._base_bytes is None:
            self._base_bytes = num_bytes
        self.grown_bytes = max(self.grown_bytes, num_bytes - self._base_bytes)
        return self.grown_bytes > _MAX_CHECKER_BYTES

    def used_s(self) -> float:
        return self._cpu_s() - self._cpu_at_s

    def end(self) -> int:
        """Returns the exit status, negative for a signal: its own if it had ended before."""
        self._process.kill()
        self.connection.close()
        return self._process.reap()

    def _cpu_s(self) -> float:
        times = self._use.cpu_times()
        return float(times.user + times.system)
