"""Engines whose node was killed, until the next node adopts them.

On Linux the supervisor becomes their parent, learns their end, and ends those that no node has
ended. It also keeps each engine that serves. Elsewhere engines end with their node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from vinery_platform.config.env import SettingError
from vinery_platform.processes.supervisor import describe
from vinery_serving.node.adoption import KeptEngines
from vinery_serving.processes.child import kill_group
from vinery_serving.processes.parent import prctl
from vinery_serving.processes.upkeep import until_next

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
# The services' own processes are waited for elsewhere, at once.
_REAP_AFTER_S: Final = 1.0
# How often to look for new engines: several times while an engine waits for a node.
_KEEP_INTERVAL_S: Final = 4.0
# In the time that the services leave of the ten seconds that containers get.
_GRACE_S: Final = 1.0


class Orphans:
    """Call `begin` once in the event loop, and `end` when no service runs any more."""

    def __init__(
        self, own: Callable[[], Container[int]], run_dir: Path, secret: Callable[[], bytes]
    ) -> None:
        """`own` returns the ids of the services' processes, `secret` that of engines' sockets."""
        self._own = own
        self._kept = KeptEngines(run_dir, secret)
        self._keeping: asyncio.Task[None] | None = None
        self._reaping: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """From now on, orphans become children of this process."""
        if prctl(_PR_SET_CHILD_SUBREAPER, 1):
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap_later)
            self._keeping = asyncio.create_task(self._keep(), name="keep engines")

    async def end(self) -> None:
        """Terminate the orphans, and kill those that do not end in time."""
        import psutil  # 3 MB, and 10 ms of each start

        left = psutil.Process().children()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = await asyncio.to_thread(psutil.wait_procs, left, _GRACE_S)
        for process in left:
            kill_group(process.pid)  # for leaders of a group
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await asyncio.to_thread(psutil.wait_procs, left, _GRACE_S)

    async def _keep(self) -> None:
        while True:
            # Without the secret the engines that are known already are kept.
            with contextlib.suppress(SettingError):
                self._kept.look()
            await asyncio.sleep(until_next(_KEEP_INTERVAL_S))

    def _reap_later(self) -> None:
        if self._reaping is None:
            loop = asyncio.get_running_loop()
            self._reaping = loop.call_later(_REAP_AFTER_S, self._reap)

    def _reap(self) -> None:
        self._reaping = None
        own = self._own()
        with contextlib.suppress(ChildProcessError):  # there is no child
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid in own:
                    self._reap_later()  # others may be behind it
                    return
                is_engine = os.getpgid(ended.si_pid) == ended.si_pid
                pid, status = os.waitpid(ended.si_pid, 0)
                if is_engine:
                    end = describe(os.waitstatus_to_exitcode(status))
                    log.info("engine process %d, which had outlived a node, ended (%s)", pid, end)
