"""Who calls, and whether their key is for this, as errors that clients are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from accounts.errors import KeyRefused, NotAllowed
from accounts.keytable import ANONYMOUS, Caller
from serving.core.errors import InvalidKey, NotPermitted
from serving.edge import Scope
from serving.runtime import Runtime


def authenticate(runtime: Runtime, authorization: bytes | str | None) -> Caller:
    """The caller behind an `Authorization` header. Raises `InvalidKey`."""
    if not runtime.is_auth_on:
        return ANONYMOUS
    try:
        return runtime.keys.authenticate(authorization)
    except KeyRefused as refused:
        raise InvalidKey(refused.message) from None


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
