"""GET requests of pulls: scheme, host and addresses are checked at every redirect as at first.

A connection goes to an address that was checked. Behind a proxy of the environment, the proxy
resolves names, so only hosts that are written as addresses are checked. Addresses must be public,
or in VINERY_JOB_NETWORKS, and are never those of a cloud's metadata service.
"""

import asyncio
import functools
import os
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from vinery_accounts.outbound import addresses
from vinery_accounts.outbound.client import Client, ExchangeFailed
from vinery_accounts.outbound.urls import Url, UrlRefused, join, read_url
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed

_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_EVERYWHERE: Final = addresses.read_networks(("0.0.0.0/0", "::/0"))


@functools.cache
def _tls() -> ssl.SSLContext:
    import httpx2  # with the authorities that `huggingface_hub` trusts

    return httpx2.create_ssl_context()


CLIENT: Final = Client(connect_s=20.0, tls=_tls)


@contextmanager
def opened(url: str, headers: Mapping[str, str], timeout_s: float, hub: str = "") -> Iterator[Any]:
    """Yield the response, of `httpx2`, to a GET without compression. `hub` is a URL whose server
    may have a private address and gets the header `Authorization`. Raises `PullFailed`, and
    `HubUnavailable` for what may pass."""
    import huggingface_hub.utils  # noqa: F401  # the readers of responses use it

    sent = {each.lower(): value for each, value in headers.items()}
    sent.pop("user-agent", None)  # the client has its own
    with _explained():
        target, own = read_url(url), read_url(hub).origin if hub else ""
        for _ in range(_MAX_REDIRECTS + 1):
            if target.origin != own:
                sent.pop("authorization", None)
            networks = _EVERYWHERE if target.origin == own else _job_networks()
            with _exchange(target, sent, timeout_s, networks) as response:
                if response.status_code not in _REDIRECTS:
                    yield response
                    return
                target = following(target, response.headers.get("location", ""))
    raise PullFailed(f"{target.host} redirects more than {_MAX_REDIRECTS} times.")


def following(url: Url, location: str) -> Url:
    """Return the target of a redirect. Raises `PullFailed`."""
    try:
        target = join(url, location)
    except UrlRefused as error:
        raise PullFailed(f"{url.host} redirects to a URL that is refused. {error}") from None
    if url.is_tls and not target.is_tls:
        raise PullFailed(f"{url.host} redirects from https:// to http://, which is not followed.")
    return target


def _job_networks() -> tuple[addresses.Network, ...]:
    words = os.environ.get("VINERY_JOB_NETWORKS", "").split(",")
    return addresses.read_networks(word for word in words if word.strip())


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except UrlRefused as error:
        raise PullFailed(f"No file is fetched from this URL. {error}") from None
    except addresses.AddressRefused as error:
        raise PullFailed(
            f"No file is fetched there: {error} VINERY_JOB_NETWORKS names private networks."
        ) from None
    except ExchangeFailed as error:
        raise HubUnavailable(f"{error} Check the network and HTTPS_PROXY.") from None


def _exchange(
    url: Url, headers: Mapping[str, str], timeout_s: float, networks: tuple[addresses.Network, ...]
) -> AbstractContextManager[Any]:
    is_named = not {url.scheme, "all"}.isdisjoint(urllib.request.getproxies())
    if not is_named or urllib.request.proxy_bypass(url.host):
        return _direct(url, headers, timeout_s, networks)
    if addresses.read_address(url.host) is not None:
        addresses.check_address(url.host, networks)
    import httpx2

    sent = {"accept-encoding": "identity", **headers}
    return httpx2.stream("GET", str(url), headers=sent, timeout=timeout_s, follow_redirects=False)


@contextmanager
def _direct(
    url: Url, headers: Mapping[str, str], timeout_s: float, networks: tuple[addresses.Network, ...]
) -> Iterator[Any]:
    import httpx2

    client = replace(CLIENT, read_s=timeout_s)
    route = asyncio.run(
        client.route(url, functools.partial(addresses.check_address, networks=networks))
    )
    with client.exchange_blocking(route, headers) as found:
        request, content = httpx2.Request("GET", str(url)), found.iter_stream()
        yield httpx2.Response(found.status, headers=found.headers, content=content, request=request)
