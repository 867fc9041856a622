"""Who may read `/metrics`, which names organisations, models and amounts of use.

Without a public URL, every client that reaches the port: the network protects it. With one, only
clients on this machine that did not come through the proxy, and clients with the token.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vinery_accounts.outbound.addresses import read_address

# Proxies add one of these.
_FORWARDED: Final = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
)
_BEARER: Final = b"bearer "


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    token: bytes = field(default=b"", repr=False)
    """Bytes of the bearer token; empty: no token admits."""
    is_public: bool = False
    """Whether the server has a public URL."""

    def permits(self, scope: Mapping[str, Any]) -> bool:
        """Whether the client of this request may read the metrics."""
        if not (self.is_public or self.token):
            return True
        headers = scope["headers"]
        return _is_local(scope.get("client"), headers) or self._has_token(headers)

    def _has_token(self, headers: Any) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        if not self.token or given[: len(_BEARER)].lower() != _BEARER:
            return False
        return hmac.compare_digest(given[len(_BEARER) :].strip(), self.token)


def _is_local(client: Any, headers: Any) -> bool:
    if not client or any(name in _FORWARDED for name, _ in headers):
        return False
    address = read_address(client[0])
    return address is not None and address.is_loopback
