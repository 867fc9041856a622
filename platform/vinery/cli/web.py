"""`vinery web`: one web process, by uvicorn or Daphne."""

import argparse
import socket
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from vinery.cli.shape import start_django
from vinery.config.env import SettingError
from vinery.process.listening import BACKLOG, DAPHNE, Address, listen, server_for

# How long open streams may continue after SIGTERM.
_GRACE_S = 5
# Longer than clients keep idle connections (5 s in httpx, 60 s in most proxies). Otherwise a client
# may send a request on a connection that the server is closing.
_KEEP_ALIVE_S = 75


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fd", type=int, metavar="N", help="serve on this inherited listening socket instead"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM. Raises `SettingError`."""
    sock = listen(Address.from_env()) if arguments.fd is None else _inherited(arguments.fd)
    server = server_for(sock)
    start_django()
    if server == DAPHNE:
        from vinery.process import daphne_server  # before anything else that imports Twisted

        daphne_server.serve(_application(), sock, grace_s=_GRACE_S)
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


def _application() -> Any:
    from channels.routing import get_default_application
    from django.conf import settings

    application = get_default_application()  # what ASGI_APPLICATION names
    is_proxied = bool(settings.VINERY_PUBLIC_URL)
    return behind(application, settings.VINERY_TRUSTED_PROXIES) if is_proxied else application


def behind(application: Any, proxies: Iterable[IPv4Network | IPv6Network]) -> Any:
    """The application with the client's address as these proxies report it.

    Each proxy appends the address that it sees to `X-Forwarded-For`, and clients can send any
    value. So the last address that is not one of these proxies counts, and only for requests that
    come from such a proxy. uvicorn's middleware does this, on every server.
    """
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    return ProxyHeadersMiddleware(application, [str(network) for network in proxies])
