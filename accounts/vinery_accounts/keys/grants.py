"""The permissions of a key, checked in memory for each request."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec

from vinery_accounts.base.errors import NotAllowed
from vinery_accounts.models import Scope
from vinery_accounts.outbound.addresses import is_within, known_networks, read_networks

ValueT = TypeVar("ValueT")

_decode = msgspec.json.Decoder(list[str]).decode


class Grants(msgspec.Struct, frozen=True):
    """The permissions of one key. None allows all values."""

    scopes: frozenset[str]
    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None
    networks: tuple[str, ...] | None = None

    def check_scope(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise NotAllowed(
                f"This API key lacks the scope `{scope}`: it has {_listed(self.scopes)}. Use "
                "another key, or have the scope added.",
                code="missing_scope",
            )

    def check_endpoint(self, endpoint: str) -> None:
        if self.endpoints is not None and endpoint not in self.endpoints:
            raise NotAllowed(
                f"This API key may not call `{endpoint}`, only {_listed(self.endpoints)}.",
                code="endpoint_not_allowed",
            )

    def check_model(self, model: str) -> None:
        if not self.allows_model(model):
            raise NotAllowed(
                f"This API key may not use the model `{model}`, only {_listed(self.models or ())}.",
                code="model_not_allowed",
                param="model",
            )

    def allows_model(self, model: str) -> bool:
        return self.models is None or model in self.models

    def check_address(self, address: str | None) -> None:
        networks = known_networks(self.networks or ())
        if self.networks is not None and (address is None or not is_within(address, networks)):
            raise NotAllowed(
                f"This API key may not be used from {address or 'an unknown address'}. Ask its "
                "owner for its allowed networks.",
                code="address_not_allowed",
            )


ALL = Grants(frozenset(map(str, Scope)))


@lru_cache(maxsize=4096)
def read_grants(scopes: str, models: str, endpoints: str, networks: str) -> Grants:
    """The grants of four JSON lists. Keys with the same lists share one object."""
    return Grants(
        frozenset(_decode(scopes)),
        _some(models, frozenset),
        _some(endpoints, frozenset),
        _some(networks, lambda texts: tuple(map(str, read_networks(texts)))),
    )


def _some(text: str, make: Callable[[Iterable[str]], ValueT]) -> ValueT | None:
    values = _decode(text)
    return make(values) if values else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
