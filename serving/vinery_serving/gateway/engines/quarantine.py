"""Requests that ended two engines. They are refused, because each would end the next one too.

A request is recognised by a hash of the model and of all that its engine was to do. Who sends it,
and fields that no engine sees, do not change the hash.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import structs

from vinery_serving.core.errors import RequestQuarantined
from vinery_serving.transport.messages import PoolTexts, Submit

log = logging.getLogger(__name__)

_DIGEST_BYTES: Final = 16
# What an engine is asked to do.
Work = Submit | PoolTexts


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A request that is refused from now on."""

    digest: str  # 32 hexadecimal digits
    model: str
    request_id: str  # of the request that ended the engines
    organization_id: int  # 0: none
    key_id: int  # 0: none


class Quarantine:
    """The requests that this process refuses. Belongs to the event loop."""

    def __init__(self, on_add: Callable[[Quarantined], None] | None = None) -> None:
        """`on_add` stores a request. It comes back with `follow`, until then it is refused here
        alone. Without it no request is ever refused."""
        self._on_add = on_add
        self._digests: frozenset[str] = frozenset()

    def follow(self, digests: Collection[str]) -> None:
        """Replace what is refused."""
        self._digests = frozenset(digests)

    def check(self, model: str, submits: Sequence[Work]) -> None:
        """`submits` are those of one request. Raises RequestQuarantined."""
        if self._digests and (digest := _digest(model, submits)) in self._digests:
            raise RequestQuarantined(
                "Engines ended while they ran this request, so it is not run again. Change it, or "
                f"ask an administrator to release it from quarantine (its digest is {digest})."
            )

    def add(self, model: str, submits: Sequence[Work]) -> None:
        """Refuse this request from now on."""
        if self._on_add is None:
            return
        first, digest = submits[0], _digest(model, submits)
        organization_id, key_id = first.lane
        named = {"request_id": first.request_id, "model": model, "digest": digest}
        log.error(
            "request quarantined, because engines ended while they ran it",
            extra={"fields": {**named, "key_id": key_id or None}},
        )
        self._digests |= {digest}
        self._on_add(Quarantined(digest, model, first.request_id, organization_id, key_id))


def _digest(model: str, submits: Sequence[Work]) -> str:
    digest = blake2b(model.encode(), digest_size=_DIGEST_BYTES)
    for submit in submits:
        digest.update(msgspec.msgpack.encode(_without_client(submit)))
    return digest.hexdigest()


def _without_client(submit: Work) -> Work:
    """What an engine would do for any client. A seed that the server has drawn differs each time,
    so seeds are left out."""
    if isinstance(submit, PoolTexts):
        plain = structs.replace(submit, id=0, deadline_s=0.0, request_id="", lane=(0, 0))
        return structs.replace(plain, goes_on=False)
    return structs.replace(
        submit,
        id=0,
        sampling=replace(submit.sampling, seed=0),
        deadline_s=0.0,
        cache_key=None,
        request_id="",
        num_granted=None,
        lane=(0, 0),
        priority=0,
    )
