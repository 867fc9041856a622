"""Daphne on an inherited socket, for development and behind a proxy that bounds its clients.

Daphne holds a whole body before the application sees the request, and has none of the limits of
`connections`. A signal to end lets it answer the requests that run: see
`vinery_serving.gateway.state.drain`. Importing this module installs Twisted's reactor, so import
nothing of Twisted before.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
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
        self._draining: asyncio.Task[None] | None = None
        self._ports: list[Any] = []
        self._is_ending = False

    def listen_success(self, port: Any) -> None:
        """Called by Daphne."""
        super().listen_success(port)
        self._ports.append(port)

    def begin(self) -> None:
        """Called first in the event loop."""
        heartbeats.begin_in_loop()
        loop_watch.begin()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(heartbeats.END_WHEN_IDLE, self._end_when_idle)
        for number in (signal.SIGTERM, signal.SIGINT):  # instead of the reactor's
            loop.add_signal_handler(number, self._begin_to_drain)
        heartbeats.report_serving()
        log.warning(_WARNING)

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Called for each request. A WebSocket is refused: no path has one."""
        if scope["type"] != "websocket":
            return super().create_application(protocol, scope)
        refused = ConnectionDeny(UpgradeRefused.status, "Upgrade")  # type: ignore[no-untyped-call]
        # The caller makes the Deferred after this.
        reactor.callLater(0, lambda: protocol.handshake_deferred.errback(refused))
        return asyncio.Queue()

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Called for each message of an application. Answers of a server that ends close their
        connections."""
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
        return super().kill_all_applications().addCallback(self._end_lifespan)

    def _begin_to_drain(self) -> None:
        """A signal asks the process to end."""
        self._drain.begin()
        self._is_ending = True
        if self._draining is None:
            self._draining = asyncio.create_task(self._end_when_drained(), name="drain")

    async def _end_when_drained(self) -> None:
        """Answer the requests that run, and refuse others, also on new connections."""
        await self._drain.finish(self._limit_s())
        self._stop_listening()
        loop = asyncio.get_running_loop()
        self._end_once_idle(loop, loop.time() + CLOSE_WITHIN_S)

    def _end_when_idle(self) -> None:
        """Take no connection, and end when the last request has. SIGTERM ends it as ever."""
        self._drain.is_replaced = True
        self._is_ending = True
        self._stop_listening()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + LAST_REQUESTS_S + settings.VINERY_REQUEST_TIMEOUT_S
        loop.call_later(LAST_REQUESTS_S, self._end_once_idle, loop, give_up_at)

    def _stop_listening(self) -> None:
        while self._ports:
            self._ports.pop().stopListening()

    def _end_once_idle(self, loop: asyncio.AbstractEventLoop, give_up_at: float) -> None:
        is_busy = any("application_instance" in each for each in self.connections.values())
        if is_busy and loop.time() < give_up_at:
            loop.call_later(_POLL_S, self._end_once_idle, loop, give_up_at)
        else:
            self.stop()

    def _end_lifespan(self, _: Any) -> Any:
        return Deferred.fromFuture(asyncio.ensure_future(_end_lifespan(self.application)))


async def _end_lifespan(application: Any) -> None:
    """Run the startup and the shutdown of an application. Its startup must be idempotent."""
    messages = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        """Ignore the acknowledgement."""

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)


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
