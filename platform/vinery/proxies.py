"""Who a request comes from, where proxies are in front, whichever server serves it.

Each proxy adds the address that it sees to `X-Forwarded-For`, and clients write there what they
like. So the last address counts that is not one of our own proxies, and only a proxy is believed
at all. uvicorn's middleware does just this.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def behind(application: Any, proxies: Iterable[IPv4Network | IPv6Network]) -> Any:
    """The application as it is seen through these proxies."""
    return ProxyHeadersMiddleware(application, [str(network) for network in proxies])
