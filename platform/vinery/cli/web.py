"""`vinery web`: one web process, by uvicorn or Daphne."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from vinery.cli.shape import Commands, start_django
from vinery.env import SettingError
from vinery.listening import BACKLOG, DAPHNE, Address, listen, server_for

# How long open streams may continue after SIGTERM.
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
    sock = listen(Address.from_env()) if arguments.fd is None else _inherited(arguments.fd)
    server = server_for(sock)
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

    config = uvicorn.Config(
        _application(),
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[sock])


def _serve_by_daphne(sock: socket.socket) -> None:
    from vinery import daphne_server  # before anything else that imports Twisted

    daphne_server.serve(_application(), sock, grace_s=_GRACE_S)


def _application() -> Any:
    """Return the ASGI application, which is loaded by its name, behind the trusted proxies."""
    from django.conf import settings
    from django.utils.module_loading import import_string

    from vinery.proxies import behind

    application = import_string("vinery.asgi.application")
    is_proxied = bool(settings.VINERY_PUBLIC_URL)
    return behind(application, settings.VINERY_TRUSTED_PROXIES) if is_proxied else application
