"""Reads request bodies: each with a limit and deadlines, all of them within a budget of bytes.

The first bytes of a body are not counted. So the budget costs an ordinary request nothing, and
cannot be used to refuse it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final, Self

from django.conf import settings

from vinery_serving.core.errors import BodyTooLarge, InvalidRequest, Overloaded, TooManyBodies
from vinery_serving.gateway.endpoints.edge import Message, Receive, Scope, header
from vinery_serving.gateway.endpoints.refusals import REFUSALS, Reason

FREE_BYTES: Final = 64 * 1024
_SILENCE_S: Final = 60.0  # how long a client may send nothing before its body is complete
# How long the body of a request is read that is refused whatever it has.
_SKIP_WITHIN_S: Final = 1.0


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    timeout_s: float  # for the whole body
    silence_s: float = _SILENCE_S


class BodyBudget:
    """Bytes of request bodies in memory, in all and of each owner. Belongs to the event loop."""

    def __init__(
        self, max_bytes: int, max_bytes_of_owner: int, free_bytes: int = FREE_BYTES
    ) -> None:
        self.free_bytes, self._max_bytes = free_bytes, max_bytes
        self._max_bytes_of_owner = max_bytes_of_owner
        self._of_owners: Counter[Hashable] = Counter()
        self.num_bytes = 0

    def claim(self, owner: Hashable) -> "BodyClaim":
        return BodyClaim(self, owner)

    def take(self, owner: Hashable, num_bytes: int) -> None:
        if self._of_owners[owner] + num_bytes > self._max_bytes_of_owner:
            REFUSALS.count(Reason.BODIES)
            raise TooManyBodies(self._max_bytes_of_owner)
        if self.num_bytes + num_bytes > self._max_bytes:
            REFUSALS.count(Reason.BODIES)
            raise Overloaded("Too many large requests are being read or answered. Try again.")
        self.num_bytes += num_bytes
        self._of_owners[owner] += num_bytes

    def give_back(self, owner: Hashable, num_bytes: int) -> None:
        self.num_bytes -= num_bytes
        self._of_owners[owner] -= num_bytes
        if not self._of_owners[owner]:
            del self._of_owners[owner]


@dataclass(slots=True)
class BodyClaim:
    _budget: BodyBudget
    _owner: Hashable
    _num_bytes: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def cover(self, num_body_bytes: int) -> None:
        """Claim what a body of this length needs. Raises `TooManyBodies` or `Overloaded`."""
        missing = num_body_bytes - self._budget.free_bytes - self._num_bytes
        if missing > 0:
            self._budget.take(self._owner, missing)
            self._num_bytes += missing

    def keep(self, num_bytes: int) -> None:
        """Claim so many bytes instead of the body's. Raises `TooManyBodies` or `Overloaded`."""
        self.release()
        self.cover(num_bytes)

    def release(self) -> None:
        if self._num_bytes:
            self._budget.give_back(self._owner, self._num_bytes)
            self._num_bytes = 0


@cache
def api_bodies() -> BodyBudget:
    """The budget of the API's bodies in this process. One key may use half."""
    total, largest = settings.VINERY_MAX_BODIES_BYTES, settings.VINERY_MAX_BODY_BYTES
    return BodyBudget(max(total, largest), max(total // 2, largest))


async def read_body(scope: Scope, receive: Receive, limits: BodyLimits, claim: BodyClaim) -> bytes:
    """The whole body. Raises `BodyTooLarge`, if the client announces its length before anything is
    read, `TooManyBodies` and `Overloaded` for a budget that is used up, `ClientGone`, and
    `InvalidRequest` when the body does not arrive in time."""
    announced = header(scope, b"content-length")  # which the server has checked
    if announced is not None and announced.isdigit() and int(announced) > limits.max_bytes:
        raise _too_large(limits)
    ends_at_s = time.monotonic() + limits.timeout_s
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await _next_message(receive, limits, ends_at_s)
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > limits.max_bytes:
            raise _too_large(limits)
        claim.cover(num_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def skip_body(scope: Scope, receive: Receive) -> None:
    """Read and drop the body: a client that still sends would not read the answer of a connection
    that closes. A client that waits for `100 Continue` is not asked for the body."""
    if header(scope, b"expect") is not None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_SKIP_WITHIN_S):
            while (await receive()).get("more_body", False):
                """There may be more of it."""


async def disconnected(receive: Receive) -> Message:
    """Wait until the client leaves, and ignore what comes of its body. Returns the last message."""
    while (message := await receive())["type"] != "http.disconnect":
        """There may be more of it."""
    return message


async def _next_message(receive: Receive, limits: BodyLimits, ends_at_s: float) -> Message:
    try:
        async with asyncio.timeout(min(limits.silence_s, ends_at_s - time.monotonic())):
            return await receive()
    except TimeoutError:
        REFUSALS.count(Reason.BODY_TIMEOUT)
        raise InvalidRequest(
            f"The request body did not arrive within {limits.timeout_s:g} s, or nothing of it for "
            f"{limits.silence_s:g} s."
        ) from None


def _too_large(limits: BodyLimits) -> BodyTooLarge:
    REFUSALS.count(Reason.BODY_TOO_LARGE)
    return BodyTooLarge(limits.max_bytes)
