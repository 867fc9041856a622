"""Suspects requests of having ended an engine process, and refuses the requests at fault.

A killed process cannot name the request at fault, so all its requests are suspects, and go on with
the next engine. If only one request has been there at the ends of two engines, it is at fault.
Several such requests take turns, each without the others until the first new token: an end of the
engine is then the fault of that request alone. A planned end counts against no request, and after a
long run on an engine, earlier ends do not count.

A request at fault is refused from then on, because it would end the next engines too. It is known
by a hash of the model and of all the engine's work, but not of the client.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
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


@dataclass(eq=False, slots=True)
class Run:
    """One request, from the first submission to the end. Times are of the monotonic clock."""

    submitted_at: float = 0.0
    client: object = None  # of the engine that runs it
    num_ends: int = 0
    is_at_fault: bool = False
    has_turn: bool = False  # runs alone, as a suspect, until the first new token


class Suspects:
    """The running requests of one model in this process. Belongs to the event loop."""

    def __init__(self) -> None:
        self._running: set[Run] = set()
        self._turn = asyncio.Lock()

    async def take_turn(self, run: Run) -> None:
        """Wait until no other suspect of two ends runs. Returns at once for other requests."""
        if run.num_ends >= _NUM_ENDS and not run.has_turn:
            await self._turn.acquire()
            run.has_turn = True

    def submitted(self, run: Run, client: object = None) -> None:
        run.client = client
        run.submitted_at = time.monotonic()
        self._running.add(run)

    def generated(self, run: Run) -> None:
        """Note a new token of a request, which is then no suspect any more."""
        run.num_ends = 0
        self._end_turn(run)

    def ended(self, run: Run) -> None:
        """Note the end of a request. Idempotent."""
        self._running.discard(run)
        self._end_turn(run)

    def engine_ended(self, run: Run) -> None:
        """Note that the engine of a request ended without a plan. All requests of the engine report
        the end; the first report counts for all."""
        if run not in self._running:
            return
        there = {each for each in self._running if each.client is run.client}
        self._running -= there
        now = time.monotonic()
        for each in there:
            was_long = now - each.submitted_at >= _INNOCENT_AFTER_S
            each.num_ends = 1 if was_long else each.num_ends + 1
        suspects = [each for each in there if each.num_ends >= _NUM_ENDS]
        if len(suspects) == 1:
            suspects[0].is_at_fault = True
        for each in there:
            self._end_turn(each)

    def _end_turn(self, run: Run) -> None:
        if run.has_turn:
            run.has_turn = False
            self._turn.release()


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
