"""Daphne on an inherited socket, with the end of ASGI's lifespan, which stores our usage.

A signal to end lets it answer the requests that run: see `vinery_serving.runtime.drain`.
Importing this module installs Twisted's reactor, so import nothing of Twisted before.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from daphne.server import Server
from django.conf import settings
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from vinery_platform.process import heartbeats
from vinery_platform.process.connections import MAX_UNSENT_BYTES, Connections
from vinery_platform.process.daphne_protocol import BodyQueue, LimitedFactory, StreamedRequest
from vinery_platform.process.heartbeats import CLOSE_WITHIN_S, LAST_REQUESTS_S
from vinery_platform.process.loop_watch import loop_watch
from vinery_serving.runtime.drain import Drain

# How often a server that ends when it is idle looks whether it is.
_POLL_S = 0.1


class LimitedServer(Server):  # type: ignore[misc]
    """Daphne with limits on connections, and the end of the lifespan."""

    def __init__(
        self, *, table: Connections, drain: Drain, limit_s: Callable[[], float], **options: Any
    ) -> None:
        super().__init__(**options)
        self._drain = drain
        self._limit_s = limit_s
        self._draining: asyncio.Task[None] | None = None
        self._factory = LimitedFactory(self, table)
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

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Called for each message of an application. Answers of a server that ends close their
        connections."""
        if self._is_ending and message["type"] == "http.response.start":
            close = (b"connection", b"close")
            message = {**message, "headers": [*message.get("headers", ()), close]}
            protocol.channel.persistent = False
        for part in _parts_of(message):
            await protocol.body.channel.wait_until_sent()
            await super().handle_reply(protocol, part)

    @property
    def http_factory(self) -> LimitedFactory:
        return self._factory

    @http_factory.setter
    def http_factory(self, _: Any) -> None:
        """Ignore Daphne's own."""

    def create_application(self, protocol: StreamedRequest, scope: dict[str, Any]) -> BodyQueue:
        """Start the application for a request, which reads the body while it arrives."""
        scope.setdefault("asgi", {"version": "3.0"})
        answer = self.application(scope, protocol.body.get, partial(self.handle_reply, protocol))
        self.connections[protocol]["application_instance"] = asyncio.ensure_future(answer)
        return protocol.body

    def kill_all_applications(self) -> Any:
        """Called once before the reactor ends. Returns a Deferred for which the reactor waits."""
        for details in self.connections.values():
            # A request without a whole header has no application, which Daphne expects.
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            details.setdefault("application_instance", ended)
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
        return Deferred.fromFuture(asyncio.ensure_future(end_lifespan(self.application)))


def _parts_of(message: Any) -> Iterator[Any]:
    """The message, or several with its body, which Twisted would copy."""
    body = message.get("body", b"")
    last = max(len(body) - 1, 0) // MAX_UNSENT_BYTES * MAX_UNSENT_BYTES
    for start in range(0, last, MAX_UNSENT_BYTES):
        yield {**message, "body": body[start : start + MAX_UNSENT_BYTES], "more_body": True}
    yield {**message, "body": body[last:]} if last else message


async def end_lifespan(application: Any) -> None:
    """Run the startup and the shutdown of an application. Its startup must be idempotent."""
    messages = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        """Ignore the acknowledgement."""

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)


def serve(
    application: Any,
    sock: socket.socket,
    table: Connections,
    drain: Drain,
    limit_s: Callable[[], float],
) -> None:
    """Serve an IPv4 socket until SIGTERM. Then requests that run may go on for `limit_s`."""
    server = LimitedServer(
        table=table,
        drain=drain,
        limit_s=limit_s,
        application=application,
        endpoints=[f"fd:fileno={sock.fileno()}"],
        application_close_timeout=int(CLOSE_WITHIN_S),
        server_name="",
    )
    reactor.callLater(0, server.begin)  # `callWhenRunning` would call before the loop runs
    server.run()
