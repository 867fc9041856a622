"""One engine process, from its start to its end, as the node sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from serving.engine.config import EngineConfig
from serving.transport.client import EngineClient, EngineDisconnected

log = logging.getLogger(__name__)

_PING_INTERVAL_S: Final = 1.0
_END_TIMEOUT_S: Final = 3.0
# What an engine may see of the environment: where programs and drivers are, no secrets.
_PASSED_ON: Final = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "HOME")


class EngineDied(Exception):
    """The engine did not load, ended by itself, or hung and was killed. Says why."""


class EngineProcess:
    """`start`, then `watch` until it raises; `end` in any case."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._process: Process | None = None
        self._client = EngineClient(config.socket_path)

    @property
    def pid(self) -> int | None:
        """The process id, once started."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises `EngineDied`."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        command = [sys.executable, "-m", "serving.engine", self._config.to_json()]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env=environment
        )
        timeout_s = self._config.options.load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_ready()
        except TimeoutError:
            raise EngineDied(f"It did not load within {timeout_s:g} s.") from None
        self._client.open()

    async def watch(self) -> None:
        """Returns never: raises `EngineDied` when the process ends or hangs in a step."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        pulse = asyncio.create_task(self._check_pulses())
        try:
            # Both at once: one that has ended answers no more, and is not to be waited for as
            # long as a step may take.
            await asyncio.wait([ended, pulse], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await pulse
            raise EngineDied(f"The engine process ended with status {await ended}.")
        finally:
            for task in (ended, pulse):
                task.cancel()
            await asyncio.gather(ended, pulse, return_exceptions=True)

    async def end(self) -> None:
        """End the process: politely, then not."""
        await self._client.close()
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _wait_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise EngineDied(
                f"The engine process ended with status {status} while it loaded. The server's "
                "log may say why."
            )
        said = json.loads(line)
        if said["event"] != "ready":
            raise EngineDied(said["error"])

    async def _check_pulses(self) -> None:
        """Returns never, as `watch`."""
        while True:
            await asyncio.sleep(_PING_INTERVAL_S)
            await self._check_pulse()

    async def _check_pulse(self) -> None:
        """A step that never ends keeps the engine silent: only killing it helps."""
        timeout_s = self._config.options.step_timeout_s
        try:
            await self._client.wait_connected(timeout_s)
            await self._client.ping(timeout_s)
        except EngineDisconnected:
            return  # it is ending: its exit status says more
        except TimeoutError:
            assert self._process is not None
            log.error("engine hung model=%s pid=%s", self._config.name, self.pid)
            with contextlib.suppress(ProcessLookupError):  # it ended at this moment
                self._process.kill()
            raise EngineDied(f"A step took longer than {timeout_s:g} s.") from None
