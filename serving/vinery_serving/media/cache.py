"""Media that were fetched a short time ago, for the next request of the same project.

A follow-up question about a picture names its URL again. The key of an entry has the project and
the whole policy, so that another project, or a rule that changed meanwhile, finds nothing. Equal
bytes of one project are kept once, by their SHA-256.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final

_MAX_ENTRIES: Final = 1024


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was fetched."""

    data: bytes
    content_type: str | None  # in lower case, as the server declared it
    max_pixels: int  # that the rules allow
    may_be_kept: bool = True  # the server does not forbid it


@dataclass(frozen=True, slots=True)
class _Entry:
    content: Content
    shared: tuple[Hashable, bytes]  # the owner and the digest of the bytes
    until_s: float


@dataclass(slots=True)
class _Kept:
    data: bytes
    num_entries: int = 0


class MediaCache:
    """Belongs to one event loop. Keeps at most `max_bytes`, the least recently used leave first."""

    def __init__(
        self, max_bytes: int, max_age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._kept: dict[tuple[Hashable, bytes], _Kept] = {}
        self.num_bytes = 0

    def get(self, owner: Hashable, key: Hashable) -> Content | None:
        """The content, if it was put for this owner within the last `max_age_s`."""
        self._drop_expired()
        entry = self._entries.get((owner, key))
        if entry is None:
            return None
        self._entries.move_to_end((owner, key))
        return entry.content

    def put(self, owner: Hashable, key: Hashable, content: Content, digest: bytes) -> None:
        """Keep the content, unless it is larger than half of the cache."""
        if len(content.data) > self._max_bytes // 2:
            return
        self._drop((owner, key))
        shared = owner, digest
        content = replace(content, data=self._share(shared, content.data))
        self._entries[owner, key] = _Entry(content, shared, self._clock() + self._max_age_s)
        while self.num_bytes > self._max_bytes or len(self._entries) > _MAX_ENTRIES:
            self._drop(next(iter(self._entries)))

    def _share(self, shared: tuple[Hashable, bytes], data: bytes) -> bytes:
        kept = self._kept.get(shared)
        if kept is None:
            kept = self._kept[shared] = _Kept(data)
            self.num_bytes += len(data)
        kept.num_entries += 1
        return kept.data

    def _drop_expired(self) -> None:
        now_s = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.until_s <= now_s]:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        kept = self._kept[entry.shared]
        kept.num_entries -= 1
        if not kept.num_entries:
            del self._kept[entry.shared]
            self.num_bytes -= len(kept.data)
