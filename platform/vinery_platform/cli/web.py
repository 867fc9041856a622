"""`vinery web`: one web process, by uvicorn or Daphne."""

import argparse
import socket
import sys
from collections.abc import Iterable
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any

from vinery_platform.cli.shape import importing, start_django
from vinery_platform.config.env import SettingError
from vinery_platform.processes import heartbeats
from vinery_platform.processes.connections import ConnectionLimits, Connections
from vinery_platform.processes.listening import DAPHNE, Address, listen, server_for
from vinery_platform.processes.memory import begin_giving_back

if TYPE_CHECKING:
    from vinery_serving.gateway.state.drain import Drain

# How long the event loop waits for Python's global lock while another thread computes, such as the
# one that stores usage. Python's default, 5 ms, added 10 ms to a request in a hundred.
_SWITCH_INTERVAL_S = 0.0005


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fd", type=int, metavar="N", help="serve on this inherited listening socket instead"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM, and then until the requests that run are answered. Raises
    `SettingError`."""
    heartbeats.drain_limit_from_env()  # a wrong one is reported now
    sock = listen(Address.from_env()) if arguments.fd is None else _inherited(arguments.fd)
    server = server_for(sock)
    start_django()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    serve = _serve_by_daphne if server == DAPHNE else _serve_by_uvicorn
    serve(sock)
    heartbeats.end()
    return 0


def _serve_by_daphne(sock: socket.socket) -> None:
    with importing():
        from vinery_platform.processes import daphne_server

        application = _application()
    daphne_server.serve(application, sock, _drain(), heartbeats.drain_limit_s)


def _serve_by_uvicorn(sock: socket.socket) -> None:
    with importing():
        from vinery_platform.processes import uvicorn_server

        application = _application()
    uvicorn_server.serve(application, sock, _connections(), _drain(), heartbeats.drain_limit_s)


def _inherited(fd: int) -> socket.socket:
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise SettingError(f"--fd {fd} is not an open socket: {error.strerror}.") from error


def _connections() -> Connections:
    from django.conf import settings

    return Connections(
        ConnectionLimits(
            max_connections=settings.VINERY_MAX_CONNECTIONS,
            max_per_address=settings.VINERY_MAX_CONNECTIONS_PER_ADDRESS,
            proxies=tuple(settings.VINERY_TRUSTED_PROXIES),
        )
    )


def _drain() -> "Drain":
    from vinery_serving.gateway.state.runtime import runtime

    return runtime().drain


def _application() -> Any:
    from channels.routing import get_default_application
    from django.conf import settings

    application = get_default_application()  # what ASGI_APPLICATION names
    # Import the pages now. The first request of one would do that in the event loop, for half a
    # second.
    import_module(settings.ROOT_URLCONF)
    from vinery_serving.gateway.state.runtime import runtime

    begin_giving_back(is_idle=lambda: not runtime().live)
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
