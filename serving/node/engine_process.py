"""One engine process, from its start to its end, as the node sees it."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final, NoReturn

from serving.engine.config import EngineConfig
from serving.transport.client import EngineClient, EngineDisconnected

log = logging.getLogger(__name__)

_PING_INTERVAL_S: Final = 1.0
_END_TIMEOUT_S: Final = 3.0
# The engine's environment: where programs and drivers are, and no secrets.
_PASSED_ON: Final = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "HOME")


class EngineDied(Exception):
    """The engine did not load, ended, or hung and was killed. The message gives the reason."""


class EngineProcess:
    """Call `start`, then `watch` until it raises, and `end` in any case."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._process: Process | None = None
        self._client = EngineClient(config.socket_path)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises EngineDied."""
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

    async def watch(self) -> NoReturn:
        """Wait until the process ends or hangs in a step, then raise EngineDied."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        pings = asyncio.create_task(self._keep_pinging())
        try:
            # Both at once: a dead engine answers no ping, and a ping may take a step's timeout.
            await asyncio.wait([ended, pings], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await pings
            raise EngineDied(f"The engine process ended with status {await ended}.")
        finally:
            for task in (ended, pings):
                task.cancel()
            await asyncio.gather(ended, pings, return_exceptions=True)

    async def end(self) -> None:
        """Terminate the process, and kill it if it does not end in time."""
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
                f"The engine process ended with status {status} while it loaded. See the "
                "server's log."
            )
        report = json.loads(line)
        if report["event"] != "ready":
            raise EngineDied(report["error"])

    async def _keep_pinging(self) -> None:
        while True:
            await asyncio.sleep(_PING_INTERVAL_S)
            await self._ping()

    async def _ping(self) -> None:
        """Ping the engine. Kill it if it is silent, since it then hangs in a step."""
        timeout_s = self._config.options.step_timeout_s
        try:
            await self._client.wait_connected(timeout_s)
            await self._client.ping(timeout_s)
        except EngineDisconnected:
            return  # the process is ending; its exit status has the reason
        except TimeoutError:
            assert self._process is not None
            log.error("engine hung model=%s pid=%s", self._config.name, self.pid)
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._process.kill()
            raise EngineDied(f"A step took longer than {timeout_s:g} s.") from None
