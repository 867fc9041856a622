"""Daphne on an inherited socket, with the end of ASGI's lifespan, which stores our usage.

Importing this module installs Twisted's reactor, so import nothing of Twisted before.
"""

import asyncio
import socket
from typing import Any

from daphne.server import Server
from twisted.internet.defer import Deferred


class LifespanServer(Server):  # type: ignore[misc]
    def kill_all_applications(self) -> Any:
        """Called once before the reactor ends. Returns a Deferred for which the reactor waits."""
        return super().kill_all_applications().addCallback(self._end_lifespan)

    def _end_lifespan(self, _: Any) -> Any:
        return Deferred.fromFuture(asyncio.ensure_future(end_lifespan(self.application)))


async def end_lifespan(application: Any) -> None:
    """Run the startup and the shutdown of an application. Its startup must be idempotent."""
    messages = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        """Ignore the acknowledgement."""

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)


def serve(application: Any, sock: socket.socket, *, grace_s: int) -> None:
    """Serve an IPv4 socket until SIGTERM."""
    LifespanServer(
        application=application,
        endpoints=[f"fd:fileno={sock.fileno()}"],
        application_close_timeout=grace_s,
        server_name="",
    ).run()
