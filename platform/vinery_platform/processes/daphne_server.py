"""Daphne on an inherited socket, for development and behind a proxy that bounds its clients.

Importing this module installs Twisted's reactor, so import nothing of Twisted before.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from autobahn.websocket.types import ConnectionDeny
from daphne.server import Server
from django.conf import settings
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from vinery_platform.processes import heartbeats
from vinery_platform.processes.heartbeats import CLOSE_WITHIN_S, LAST_REQUESTS_S
from vinery_platform.processes.loop_watch import loop_watch
from vinery_serving.core.errors import UpgradeRefused
from vinery_serving.gateway.state.drain import Drain
from vinery_serving.gateway.state.runtime import runtime

log = logging.getLogger(__name__)

# How often a server that has closed its socket looks for running requests.
_POLL_S = 0.1
_WARNING = (
    "Daphne does not limit connections, headers and waiting bodies: use it for development, or "
    "behind a proxy that does. Unset VINERY_SERVER for uvicorn, which does"
)


class DrainingServer(Server):  # type: ignore[misc]
    """Daphne with signs of life, an end that waits for requests, and the end of the lifespan."""

    connections: dict[Any, dict[str, Any]]  # of Daphne

    def __init__(self, *, drain: Drain, limit_s: Callable[[], float], **options: Any) -> None:
        super().__init__(**options)
        self._drain = drain
        self._limit_s = limit_s
        self._tasks: list[asyncio.Task[Any]] = []
        self._ports: list[Any] = []
        self._is_ending = False

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._ports.append(port)

    def begin(self) -> None:
        """Called first in the event loop."""
        heartbeats.begin_in_loop()
        loop_watch.begin()
        runtime().begin()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(
            heartbeats.END_WHEN_IDLE, partial(self._begin_to_end, is_replaced=True)
        )
        for number in (signal.SIGTERM, signal.SIGINT):  # instead of the reactor's
            loop.add_signal_handler(number, partial(self._begin_to_end, is_replaced=False))
        heartbeats.report_serving()
        log.warning(_WARNING)

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Refuses WebSockets: no path has one."""
        if scope["type"] != "websocket":
            return super().create_application(protocol, scope)
        refused = ConnectionDeny(UpgradeRefused.status, "Upgrade")  # type: ignore[no-untyped-call]
        # The caller makes the Deferred after this.
        reactor.callLater(0, lambda: protocol.handshake_deferred.errback(refused))
        return asyncio.Queue()

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Answers of a server that ends close their connections."""
        if self._is_ending and message["type"] == "http.response.start":
            close = (b"connection", b"close")
            message = {**message, "headers": [*message.get("headers", ()), close]}
            protocol.channel.persistent = False
        await super().handle_reply(protocol, message)

    def kill_all_applications(self) -> Any:
        """Called once before the reactor ends. Returns a Deferred for which the reactor waits."""
        # A connection without a running request has no application, which Daphne expects.
        self.connections = {
            protocol: details
            for protocol, details in self.connections.items()
            if "application_instance" in details
        }
        return super().kill_all_applications().addCallback(_stop_runtime)

    def _begin_to_end(self, *, is_replaced: bool) -> None:
        """A signal asks the process to end. A second SIGTERM ends the requests that run."""
        self._is_ending = True
        if is_replaced:
            self._drain.is_replaced = True
        else:
            self._drain.begin()
        self._tasks.append(asyncio.create_task(self._end(is_replaced=is_replaced), name="end"))

    async def _end(self, *, is_replaced: bool) -> None:
        """Answer the requests that run, and close. A process without a successor first goes on to
        accept connections, to refuse their requests."""
        within_s = CLOSE_WITHIN_S
        if is_replaced:
            within_s = LAST_REQUESTS_S + settings.VINERY_REQUEST_TIMEOUT_S
        else:
            await self._drain.finish(self._limit_s())
        while self._ports:
            self._ports.pop().stopListening()
        await asyncio.sleep(LAST_REQUESTS_S if is_replaced else 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any("application_instance" in each for each in self.connections.values()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        self.stop()


def _stop_runtime(_: Any) -> Any:
    return Deferred.fromFuture(asyncio.ensure_future(runtime().stop()))


def serve(
    application: Any, sock: socket.socket, drain: Drain, limit_s: Callable[[], float]
) -> None:
    """Serve an IPv4 socket until SIGTERM. Then requests that run may go on for `limit_s`."""
    server = DrainingServer(
        drain=drain,
        limit_s=limit_s,
        application=application,
        endpoints=[f"fd:fileno={sock.fileno()}"],
        application_close_timeout=int(CLOSE_WITHIN_S),
        server_name="",
    )
    reactor.callLater(0, server.begin)  # `callWhenRunning` would call before the loop runs
    server.run()
