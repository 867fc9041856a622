"""Suspects requests of having ended an engine process, and refuses the requests at fault.

A killed process cannot name the request at fault, so all its requests are suspects, and go on with
the next engine. If only one request has been there at the ends of two engines, it is at fault.
Several such requests take turns, each without the others until the first new token: an end of the
engine is then the fault of that request alone. A planned end counts against no request, and after a
long run on an engine, earlier ends do not count.

A request at fault is refused from then on, because it would end the next engines too. It is known
by a hash of the model and of all the engine's work, but not of the client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import structs

from vinery_serving.core.errors import RequestQuarantined
from vinery_serving.transport.messages import PoolTexts, Submit

log = logging.getLogger(__name__)

_NUM_ENDS: Final = 2  # so many engines must end under a request before it can be at fault
# After this long on an engine, a request is not suspected of the ends before.
_INNOCENT_AFTER_S: Final = 60.0


class Suspects:
    """The running requests of one model in this process. Belongs to the event loop."""

    def __init__(self) -> None:
        self.running: set[Run] = set()
        self.turn = asyncio.Lock()


class Run:
    """One request, from the first submission to the end."""

    def __init__(self, suspects: Suspects) -> None:
        self._suspects = suspects
        self._submitted_at = 0.0  # of the monotonic clock
        self._client: object = None  # of the engine that runs it
        self.num_ends = 0
        self.is_at_fault = False
        self.has_turn = False  # runs alone, as a suspect, until the first new token

    async def take_turn(self) -> None:
        """Wait until no other suspect of two ends runs. Returns at once for other requests."""
        if self.num_ends >= _NUM_ENDS and not self.has_turn:
            await self._suspects.turn.acquire()
            self.has_turn = True

    def submitted(self, client: object = None) -> None:
        self._client, self._submitted_at = client, time.monotonic()
        self._suspects.running.add(self)

    def generated(self) -> None:
        self.num_ends = 0
        self._end_turn()

    def ended(self) -> None:
        """Note the end of the request. Idempotent."""
        self._suspects.running.discard(self)
        self._end_turn()

    def engine_ended(self) -> None:
        """Note that the engine of the request ended without a plan. All requests of the engine
        report the end; the first report counts for all."""
        running = self._suspects.running
        if self not in running:
            return
        there = {each for each in running if each._client is self._client}
        running -= there
        for each in there:
            was_long = time.monotonic() - each._submitted_at >= _INNOCENT_AFTER_S
            each.num_ends = 1 if was_long else each.num_ends + 1
            each._end_turn()
        suspects = [each for each in there if each.num_ends >= _NUM_ENDS]
        if len(suspects) == 1:
            suspects[0].is_at_fault = True

    def _end_turn(self) -> None:
        if self.has_turn:
            self.has_turn = False
            self._suspects.turn.release()


Work = Submit | PoolTexts  # the work of an engine for one request


class Quarantine:
    """The requests that this process refuses. Belongs to the event loop."""

    def __init__(self, on_add: Callable[[str, str, Work], None] | None = None) -> None:
        """`on_add` gets and stores the digest of a request (32 hexadecimal digits), the model, and
        the first submission. `follow` brings the digest back; until then the request is refused
        here alone. Without `on_add` no request is ever refused."""
        self._on_add = on_add
        self.digests: frozenset[str] = frozenset()

    def follow(self, digests: Collection[str]) -> None:
        self.digests = frozenset(digests)

    def check(self, model: str, submits: Sequence[Work]) -> None:
        """`submits` belong to one request. Raises RequestQuarantined."""
        if self.digests and (digest := _digest(model, submits)) in self.digests:
            raise RequestQuarantined(
                "Engines ended while they ran this request, so it is not run again. Change it, or "
                f"ask an administrator to release it from quarantine (its digest is {digest})."
            )

    def add(self, model: str, submits: Sequence[Work]) -> None:
        if self._on_add is None:
            return
        first, digest = submits[0], _digest(model, submits)
        _, key_id = first.lane
        named = {"request_id": first.request_id, "model": model, "digest": digest}
        log.error(
            "request quarantined, because engines ended while they ran it",
            extra={"fields": {**named, "key_id": key_id or None}},
        )
        self.digests |= {digest}
        self._on_add(digest, model, first)


def _digest(model: str, submits: Sequence[Work]) -> str:
    digest = blake2b(model.encode(), digest_size=16)
    for submit in submits:
        digest.update(msgspec.msgpack.encode(_without_client(submit)))
    return digest.hexdigest()


def _without_client(submit: Work) -> Work:
    """The work without what differs by client, and without seeds, which the server draws anew."""
    plain = structs.replace(submit, id=0, deadline_s=0.0, request_id="", lane=(0, 0))
    if isinstance(plain, PoolTexts):
        return structs.replace(plain, goes_on=False)
    sampling = replace(plain.sampling, seed=0)
    return structs.replace(plain, sampling=sampling, cache_key=None, num_granted=None, priority=0)
