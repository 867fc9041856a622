"""uvicorn on an inherited socket, with limits on connections and signs of life."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from django.conf import settings

from vinery_platform.processes import heartbeats
from vinery_platform.processes.connections import KEEP_ALIVE_S, ConnectionLimits, Connections
from vinery_platform.processes.heartbeats import CLOSE_WITHIN_S, LAST_REQUESTS_S
from vinery_platform.processes.listening import BACKLOG
from vinery_platform.processes.loop_watch import loop_watch
from vinery_platform.processes.uvicorn_protocol import limited_by
from vinery_serving.gateway.state.drain import Drain
from vinery_serving.processes.upkeep import until_next

_POLL_S = 0.1
# Answers have the date to the second.
_DATE_INTERVAL_S = 1.0
_CLOSE = (b"connection", b"close")


def serve(
    application: Any,
    sock: socket.socket,
    drain: Drain,
    limit_s: Callable[[], float],
    limits: ConnectionLimits | None = None,  # by default those of the settings
) -> None:
    """Serve until SIGTERM. Then requests that run may go on for `limit_s`."""
    table = Connections(
        limits
        or ConnectionLimits(
            max_connections=settings.VINERY_MAX_CONNECTIONS,
            max_per_address=settings.VINERY_MAX_CONNECTIONS_PER_ADDRESS,
            proxies=tuple(settings.VINERY_TRUSTED_PROXIES),
        )
    )
    protocol: type[asyncio.Protocol] = limited_by(table)
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(KEEP_ALIVE_S),
        timeout_graceful_shutdown=int(CLOSE_WITHIN_S),
    )
    _WatchedServer(config, drain, limit_s).run(sockets=[sock])


class _WatchedServer(uvicorn.Server):
    """Ends when idle, if the supervisor asks for that: see `heartbeats.END_WHEN_IDLE`."""

    def __init__(self, config: uvicorn.Config, drain: Drain, limit_s: Callable[[], float]) -> None:
        super().__init__(config)
        self._drain = drain
        self._limit_s = limit_s
        self._draining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Wait for the end. Uvicorn itself would poll ten times a second."""
        self._exit = asyncio.get_running_loop().create_future()
        while not await self.on_tick(0):  # which renews the date of answers
            await asyncio.wait([self._exit], timeout=until_next(_DATE_INTERVAL_S))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:  # it does not serve yet
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._drain.begin()
        self._loop.call_soon_threadsafe(self._begin_to_drain)

    def _begin_to_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._end_when_drained(), name="drain")

    async def _end_when_drained(self) -> None:
        await self._close_after_answers()
        await self._drain.finish(self._limit_s())
        self._leave_main_loop()

    async def _close_after_answers(self) -> None:
        """Let each answer close its connection, so no client sends a request on one that is about
        to be closed."""
        if _CLOSE not in self.config.encoded_headers:
            self.config.encoded_headers.append(_CLOSE)
        await self.on_tick(0)

    def _leave_main_loop(self) -> None:
        self.should_exit = True
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        heartbeats.begin_in_loop()
        await super().startup(sockets)
        loop_watch.begin()  # not earlier: no client waits for the start
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(heartbeats.END_WHEN_IDLE, self._begin_to_end)
        heartbeats.report_serving()

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_when_idle(), name="end-when-idle")

    async def _end_when_idle(self) -> None:
        """Take no connection, and end when the last request has. SIGTERM ends it as ever."""
        self._drain.is_replaced = True
        for server in self.servers:
            server.close()
        await self._close_after_answers()
        await asyncio.sleep(LAST_REQUESTS_S)
        for connection in list(self.server_state.connections):
            connection.shutdown()  # at once if idle, else after the answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.VINERY_REQUEST_TIMEOUT_S + LAST_REQUESTS_S):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        self._leave_main_loop()
