"""Calls that block for as long as another machine likes, such as DNS queries, from an event loop.

A thread cannot be ended. So the caller stops waiting at its deadline and the thread goes on; the
number of threads is bounded. They are daemons: no process waits for them when it ends, as it does
for the threads of an executor.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class ThreadsBusy(Exception):
    """All threads wait for calls that have not returned."""


class DaemonThreads:
    def __init__(self, max_threads: int) -> None:
        self._free = threading.BoundedSemaphore(max_threads)

    async def call(self, function: Callable[[], Result]) -> Result:
        """The function's result, or its exception. Raises `ThreadsBusy`."""
        if not self._free.acquire(blocking=False):
            raise ThreadsBusy
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                report = _outcome(function, done)
            finally:
                self._free.release()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(report)

        threading.Thread(target=run, daemon=True, name="outbound").start()
        return await done


def _outcome(function: Callable[[], Result], done: asyncio.Future[Result]) -> Callable[[], None]:
    """Call the function. Returns what gives its outcome to the future, unless it was cancelled."""
    try:
        result = function()
    except Exception as error:
        failure = error
        return lambda: None if done.done() else done.set_exception(failure)
    return lambda: None if done.done() else done.set_result(result)
