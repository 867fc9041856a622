"""Daphne on a socket that is already listening, with the end of ASGI's lifespan.

Daphne has no lifespan protocol: an application that starts itself with its first request
would never hear that it should write down what it still holds. Importing this module
installs Twisted's reactor, so nothing else that imports Twisted may come before.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from daphne.server import Server
from twisted.internet.defer import Deferred


class LifespanServer(Server):  # type: ignore[misc]
    """Ends the requests, and then the application."""

    def kill_all_applications(self) -> Any:
        """Called once, before the reactor ends; the reactor waits for what it returns."""
        return super().kill_all_applications().addCallback(self._end_lifespan)

    def _end_lifespan(self, _: Any) -> Any:
        return Deferred.fromFuture(asyncio.ensure_future(end_lifespan(self.application)))


async def end_lifespan(application: Any) -> None:
    """Run an application's lifespan from start to end. The start must be idempotent."""
    messages = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        """Nothing waits for the acknowledgement."""

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)


def serve(application: Any, sock: socket.socket, *, grace_s: int) -> None:
    """Serve an IPv4 socket until SIGTERM."""
    LifespanServer(
        application=application,
        endpoints=[f"fd:fileno={sock.fileno()}"],
        application_close_timeout=grace_s,
        server_name="",
    ).run()
