"""Which refused requests come back, and when.

A refused client is asked to return when those in front of it are served. In a lasting overload new
requests would then go before it, so that few of the times that clients get would be true. So the
server remembers for which requests it named a time: one that comes back then is not new.

A request is recognised by its key and its body, which clients repeat. Nothing but a hash is kept.
"""

from collections import deque
from collections.abc import Hashable
from hashlib import blake2b
from typing import Final

_MAX_EXPECTED: Final = 4096
# The hash of a larger body would take the event loop too long. Its beginning and its length do.
_MAX_HASHED_BYTES: Final = 64 * 1024


class Returns:
    """The times of requests by key and body. If there are too many, the oldest are forgotten.

    Clients may send the same body. Each refusal has a time of its own.
    """

    def __init__(self, most: int = _MAX_EXPECTED) -> None:
        self._most = most
        self._due_at: dict[Hashable, deque[float]] = {}
        self._named: deque[Hashable] = deque()  # oldest first; some have come back

    def expect(self, key: Hashable, body: bytes, due_at: float) -> None:
        """Remember when a request should come back."""
        name = _name(key, body)
        self._due_at.setdefault(name, deque()).append(due_at)
        self._named.append(name)
        if len(self._named) > self._most:
            self._forget_one(self._named.popleft())

    def take(self, key: Hashable, body: bytes, now: float) -> bool:
        """Return whether the request comes back at its time. It does so once."""
        name = _name(key, body) if self._due_at else None
        times = self._due_at.get(name)
        if times is None or now < times[0]:
            return False
        self._forget_one(name)
        return True

    def clear(self) -> None:
        """Forget all times."""
        self._due_at.clear()
        self._named.clear()

    def _forget_one(self, name: Hashable) -> None:
        times = self._due_at.get(name)
        if times is not None:
            times.popleft()
            if not times:
                del self._due_at[name]


def _name(key: Hashable, body: bytes) -> Hashable:
    return key, len(body), blake2b(body[:_MAX_HASHED_BYTES], digest_size=16).digest()
