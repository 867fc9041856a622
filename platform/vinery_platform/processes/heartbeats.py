"""The agreement of a process with the supervisor: the heartbeat, and how long the end may take."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from vinery_platform.config import env
from vinery_serving.processes import parent
from vinery_serving.processes.heartbeat import Page
from vinery_serving.processes.upkeep import until_next

# `FD:SECONDS`: the shared page, and the longest time between two signs of life.
VARIABLE: Final = "VINERY_HEARTBEAT"
# Of a process that takes over from another one of its service.
SUCCESSOR_VARIABLE: Final = "VINERY_SUCCESSOR"
# The exit status of a successor that cannot answer requests: uvicorn's, if the start fails.
CANNOT_ANSWER: Final = 3
# Asks a web process to accept no connection, to finish its requests, and to end.
END_WHEN_IDLE: Final = signal.SIGUSR1
# Makes a supervisor replace its web processes. Not SIGHUP, which a closed terminal sends.
RELOAD: Final = signal.SIGUSR2
# The file in the run folder for the time of the last reload, and why one process was not replaced.
RELOAD_NOTE: Final = "reload.txt"
# How long it answers requests on connections that are open.
LAST_REQUESTS_S: Final = 3.0
# Between two heartbeats, and the part of the promised time that it may be at most.
_INTERVAL_S: Final = 1.0
_PART_OF_LIMIT: Final = 1 / 3
# How long the interpreter may take to end.
_END_WITHIN_S: Final = 15.0
# Below `parent.GRACE_S`: without a supervisor there is no node, and engines end.
_WITHOUT_SUPERVISOR_S: Final = 2.0
# The time of a web process after the last request: to send errors, close connections, store usage.
CLOSE_WITHIN_S: Final = 2.0


def drain_limit_s() -> float:
    """The limit that is in force in this process now, in seconds."""
    limit = float(env.integer("VINERY_DRAIN_S"))
    return min(limit, _WITHOUT_SUPERVISOR_S) if parent.is_orphan() else limit


# The page, None without a supervisor, and the longest time between two signs of life.
_page: Page | None = None
_limit_s = 0.0


def inherit() -> None:
    """Take the page from the environment; processes that this one starts do not."""
    global _page, _limit_s
    fd, _, limit_s = os.environ.pop(VARIABLE, "").partition(":")
    if fd:
        _page, _limit_s = Page(int(fd)), float(limit_s)
        _page.allow_stacks()


def beat() -> None:
    if _page is not None:
        _page.beat(_limit_s)


def report_serving() -> None:
    """This process takes requests, and obeys `END_WHEN_IDLE`."""
    if _page is not None:
        _page.report_serving()


def end() -> None:
    """The process is ending, and gives no further sign."""
    if _page is not None:
        _page.beat(max(_END_WITHIN_S, _limit_s))


def _until_next() -> float:
    return until_next(min(_INTERVAL_S, _limit_s * _PART_OF_LIMIT))


def is_successor() -> bool:
    return bool(os.environ.get(SUCCESSOR_VARIABLE))


def begin_in_loop() -> None:
    """Beat for as long as the running event loop calls what is due."""
    if _page is None:
        return
    loop = asyncio.get_running_loop()

    def again() -> None:
        beat()
        loop.call_later(_until_next(), again)

    again()


def begin_in_thread(watched: Iterable[threading.Thread]) -> None:
    """Beat whenever all these threads wait, which one in an endless loop never does. For processes
    without an event loop, whose threads wait nearly all the time."""
    if _page is not None:
        beating = threading.Thread(
            target=_beat_for, args=(tuple(watched),), name="heartbeat", daemon=True
        )
        beating.start()


def _beat_for(threads: Sequence[threading.Thread]) -> None:
    while True:
        if all(map(_waits, threads)):
            beat()
        time.sleep(_until_next())


def _waits(thread: threading.Thread) -> bool:
    """Whether a thread of this process neither computes nor could compute, by Linux's scheduler."""
    # In a fork Python still has the former number of the main thread.
    number = os.getpid() if thread is threading.main_thread() else thread.native_id
    try:
        stat = Path(f"/proc/self/task/{number}/stat").read_bytes()
    except OSError:  # it has ended, or this is another system
        return True
    return not stat.rpartition(b") ")[2].startswith(b"R")
