"""Where a process writes its log lines: standard output and a file in the home.

Each output has a thread and a bounded queue. So a full disk, or a terminal that is not read, costs
lines and never holds up the process. The thread gathers lines for a moment, because a wake-up for
each line would cost the event loop more than the writing. A warning is written at once.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_MAX_QUEUED_BYTES: Final = 1 << 20
# A killed process may lose the lines of this time.
_GATHER_S: Final = 0.05


class Output:
    """A queue of lines, and the thread that writes them."""

    def __init__(self, write: Callable[[bytes], bool], notice: Callable[[int], bytes]) -> None:
        """`write` returns whether it has written all lines, and raises nothing. `notice` returns
        the line that reports how many lines were lost."""
        self._write = write
        self._notice = notice
        self._lock = threading.RLock()  # a handler of a signal may log while its thread does
        self._lines: deque[bytes] = deque()
        self._num_bytes = 0
        self._num_lost = 0
        self._filled, self._urgent, self._idle = (threading.Event() for _ in range(3))
        self._idle.set()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes, *, is_urgent: bool = False) -> None:
        """Write a line soon, or lose it if too many wait."""
        with self._lock:
            if self._num_bytes + len(line) > _MAX_QUEUED_BYTES:
                self._num_lost += 1
                return
            self._lines.append(line)
            self._num_bytes += len(line)
            self._idle.clear()
        if is_urgent:
            self._urgent.set()
        if not self._filled.is_set():
            self._filled.set()

    def flush(self, timeout_s: float) -> None:
        """Wait until all lines are written, at most for this time."""
        self._urgent.set()
        self._idle.wait(timeout_s)

    def _run(self) -> None:
        while True:
            self._filled.wait()
            self._urgent.wait(_GATHER_S)
            self._filled.clear()
            self._urgent.clear()
            with self._lock:
                lines, num_lost = list(self._lines), self._num_lost
                self._lines.clear()
                self._num_bytes = self._num_lost = 0
            notice = [self._notice(num_lost)] if num_lost else []
            is_written = not (lines or notice) or self._write(b"".join(lines + notice))
            with self._lock:
                self._num_lost += 0 if is_written else num_lost + len(lines)
                if not self._lines:
                    self._idle.set()


def write_all(fd: int, data: bytes) -> bool:
    """Write to a pipe or a terminal, however long that takes. Returns False if it is closed."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True
