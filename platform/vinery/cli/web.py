"""`vinery web`: one web process, by uvicorn or Daphne."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from vinery.cli.shape import Commands, start_django
from vinery.env import SettingError
from vinery.listening import BACKLOG, DAPHNE, Address, listen, server_from_env

# Streams that are open at SIGTERM may go on for so long.
_GRACE_S = 5
# Longer than clients keep idle connections (5 s in httpx, 60 s in most proxies): otherwise
# one of them sends a request on a connection that is just being closed.
_KEEP_ALIVE_S = 75


def add_to(commands: Commands) -> None:
    """Add `vinery web`."""
    parser = commands.add_parser(
        "web",
        help="run one web process (started by `up`)",
        description="Serve the APIs, the console and the admin site on VINERY_HOST, VINERY_PORT.",
    )
    parser.add_argument(
        "--fd", type=int, metavar="N", help="serve on this inherited listening socket instead"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM. Raises `SettingError`."""
    server = server_from_env()
    sock = listen(Address.from_env()) if arguments.fd is None else _inherited(arguments.fd)
    start_django()
    if server == DAPHNE:
        _serve_by_daphne(sock)
    else:
        _serve_by_uvicorn(sock)
    return 0


def _inherited(fd: int) -> socket.socket:
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise SettingError(f"--fd {fd} is not an open socket: {error.strerror}.") from error


def _serve_by_uvicorn(sock: socket.socket) -> None:
    import uvicorn
    from django.conf import settings

    from vinery.asgi import application

    config = uvicorn.Config(
        application,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.VINERY_PUBLIC_URL),
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[sock])


def _serve_by_daphne(sock: socket.socket) -> None:
    # Before anything else that imports Twisted: it installs the reactor.
    from daphne.server import Server  # isort: skip
    from django.conf import settings
    from twisted.internet import asyncioreactor, reactor
    from twisted.internet.defer import Deferred

    from vinery.asgi import application

    if sock.family != socket.AF_INET:
        raise SettingError("Daphne serves IPv4 only. Set VINERY_HOST to an IPv4 address.")
    assert isinstance(reactor, asyncioreactor.AsyncioSelectorReactor)
    reactor.addSystemEventTrigger(
        "during", "shutdown", lambda: Deferred.fromCoroutine(_end_lifespan(application))
    )
    forwarded_for = "X-Forwarded-For" if settings.VINERY_PUBLIC_URL else None
    Server(
        application=application,
        endpoints=[f"fd:fileno={sock.fileno()}"],
        application_close_timeout=_GRACE_S,
        server_name="",
        proxy_forwarded_address_header=forwarded_for,
    ).run()


async def _end_lifespan(application: Any) -> None:
    """Tell the application that the server ends: Daphne has no lifespan protocol."""
    messages = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(_message: Any) -> None:
        """Nothing waits for the acknowledgement."""

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
