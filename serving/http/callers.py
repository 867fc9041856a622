"""Who calls, and whether their key is for this, as errors that clients are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from accounts.base.errors import KeyRefused, NotAllowed
from accounts.keys.table import ANONYMOUS, Caller
from serving.core.errors import InvalidKey, NotPermitted
from serving.http.edge import OF_CALLER, Scope
from serving.runtime.runtime import Runtime

# Printable ASCII, but for the sign that other characters are written with.
_AS_IT_IS: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def authenticate(
    runtime: Runtime, scope: Mapping[str, Any], authorization: bytes | str | None
) -> Caller:
    """The caller behind an `Authorization` header, whose organisation the answer will name.

    Raises `InvalidKey`.
    """
    if not runtime.is_auth_on:
        return ANONYMOUS
    try:
        caller = runtime.keys.authenticate(authorization)
    except KeyRefused as refused:
        raise InvalidKey(refused.message) from None
    scope.get(OF_CALLER, [])[:] = organization_headers(caller.organization_name)
    return caller


@lru_cache(maxsize=4096)
def organization_headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """The organisation as OpenAI names it. What a header cannot hold is percent-encoded."""
    value = quote(name.strip(), safe=_AS_IT_IS)
    return ((b"openai-organization", value.encode()),) if value else ()


@contextmanager
def as_errors() -> Iterator[None]:
    """Raises `NotPermitted` for what a key is not for."""
    try:
        yield
    except NotAllowed as refused:
        raise NotPermitted(refused.message, param=refused.param, code=refused.code) from None


def address_of(scope: Scope) -> str | None:
    """Where the request came from; behind a proxy, what the proxy says."""
    client = scope.get("client")
    return client[0] if client else None
