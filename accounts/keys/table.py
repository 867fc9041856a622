"""Who is calling, answered from memory.

`KeyTable` holds all keys of the database. The event loop asks it, without SQL, for every
request; another thread calls `refresh()` about once a second. A key that is revoked, or
whose owner or project is deactivated, is refused from the next refresh on; one that expires,
from that moment on. A key that is new can be held back until its limits are known, which may
be read later: then `follow()` and `admit()` do the two halves of a refresh.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from accounts.base.errors import KeyRefused, Refusal
from accounts.base.timestamps import Stamped
from accounts.keys.grants import ALL, Grants, read_grants
from accounts.keys.lifecycle import digest_of, key_peppers, looks_like_key
from accounts.keys.rows import (
    Counts,
    Fingerprint,
    KeyRow,
    Stamps,
    all_rows,
    read_fingerprint,
    rows_of,
    stamps_since,
)

# How late a row may become visible after its `updated_at`: the longest transaction that
# writes keys or users, plus the difference between the clocks of two hosts.
OVERLAP_S = 30.0
_SCHEME = b"bearer"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who a request is counted for. None ids are nobody's."""

    user_id: int | None
    username: str
    key_id: int | None
    key_name: str
    project_id: int | None = None
    project_name: str = ""
    organization_id: int | None = None
    organization_name: str = ""
    grants: Grants = ALL
    captures: bool = False  # whether the project keeps texts


# Everybody, when the server runs without keys (`VINERY_AUTH=off`).
ANONYMOUS = Caller(user_id=None, username="anonymous", key_id=None, key_name="")


class _Entry(msgspec.Struct, frozen=True):
    caller: Caller
    refusal: Refusal | None
    expires_at_s: float | None  # Unix time


_Ends = dict[int, float]
"""Until when keys open the door, by their ids, in Unix time; those that open none are not there."""


class KeyTable:
    """All keys by digest. One thread may refresh while another authenticates."""

    def __init__(
        self,
        peppers: Mapping[int, bytes] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`peppers` None: those of the settings. `clock` tells Unix time in seconds."""
        numbered = key_peppers() if peppers is None else peppers
        self._peppers = tuple(pepper for _, pepper in sorted(numbered.items(), reverse=True))
        self._clock = clock
        self._entries: dict[bytes, _Entry] = {}
        self._open_until_s: _Ends = {}
        # What is new and would open the door: by digest, and after how many readings it came.
        self._coming: dict[bytes, tuple[int, _Entry]] = {}
        self._num_read = 0
        self._fingerprint: Fingerprint | None = None
        self._stamps: Stamps = {}  # of what changed lately and is read already
        self._changed_at_s = 0.0
        self._read_at_s = 0.0

    def __len__(self) -> int:
        return len(self._entries) + len(self._coming)

    @property
    def num_read(self) -> int:
        """How often the database was followed. What is read of it now is of a moment after."""
        return self._num_read

    @property
    def is_loaded(self) -> bool:
        """Whether the keys have been read once. Before that every key is unknown."""
        return self._fingerprint is not None

    def authenticate(self, authorization: bytes | str | None, now: float | None = None) -> Caller:
        """The caller behind the value of an `Authorization` header.

        `now` is Unix time in seconds. Raises `KeyRefused`.
        """
        if isinstance(authorization, str):
            authorization = authorization.encode("utf-8", "replace")
        entry = self._find(authorization or b"")
        if entry.refusal is not None:
            raise KeyRefused(entry.refusal)
        if entry.expires_at_s is not None:
            now = self._clock() if now is None else now
            if now >= entry.expires_at_s:
                raise KeyRefused(Refusal.EXPIRED)
        return entry.caller

    def is_open(self, key_id: int) -> bool:
        """Whether the key still opens the door."""
        return self._clock() < self._open_until_s.get(key_id, -math.inf)

    def refresh(self) -> None:
        """Follow the database, new keys included."""
        self.follow()
        self.admit(self._num_read)

    def admit(self, num_read: int) -> None:
        """From now on the keys open the door that are known since so many readings. For the
        thread that follows."""
        for digest, (came_with, entry) in list(self._coming.items()):
            if came_with <= num_read:
                del self._coming[digest]
                _put(self._entries, self._open_until_s, digest, entry)

    def follow(self) -> None:
        """Follow the database, but for new keys, which wait for `admit`: one query when nothing
        changed in the last half minute. The first time no key waits: whoever loads the table
        serves nobody yet.

        Lets database errors through; the table then goes on with what it has.
        """
        self._read()
        self._num_read += 1

    def _read(self) -> None:
        now_s = self._clock()
        # Read before the rows: a write between the two changes the next fingerprint.
        fingerprint = read_fingerprint()
        if fingerprint != self._fingerprint:
            self._changed_at_s = now_s
        elif self._read_at_s >= self._changed_at_s + OVERLAP_S:
            # No write that is still invisible can be older than what is read already.
            return
        self._read_rows(fingerprint, now_s)
        self._fingerprint = fingerprint
        self._read_at_s = now_s

    def _read_rows(self, fingerprint: Fingerprint, now_s: float) -> None:
        # `min`, because the clock may have been set back since.
        since_s = min(self._read_at_s or now_s, now_s) - OVERLAP_S
        # Read before the rows, too. An owner of thousands of keys who signs in has them read
        # once, and not at each refresh until the overlap is over.
        stamps = stamps_since(datetime.fromtimestamp(since_s, UTC))
        if self._fingerprint is None:
            self._load()
        else:
            self._take(rows_of(self._news(stamps)), self._entries, self._open_until_s)
            # Rows that vanished, or were changed behind Django's back, left no stamp.
            if self._counts() != fingerprint.counts:
                self._load()
        self._stamps = stamps

    def _news(self, stamps: Stamps) -> dict[type[Stamped], list[int]]:
        return {
            table: [id_ for id_, stamp in found.items() if known.get(id_) != stamp]
            for table, found in stamps.items()
            for known in [self._stamps.get(table, {})]
        }

    def _load(self) -> None:
        entries: dict[bytes, _Entry] = {}
        open_until_s: _Ends = {}
        self._coming = {}
        self._take(all_rows(), entries, open_until_s)
        self._entries, self._open_until_s = entries, open_until_s

    def _take(
        self, rows: Iterable[KeyRow], entries: dict[bytes, _Entry], open_until_s: _Ends
    ) -> None:
        known, is_first = self._entries, not self.is_loaded
        for row in rows:
            digest, entry = bytes.fromhex(row.digest), _entry(row)
            if is_first or digest in known or entry.refusal is not None:
                self._coming.pop(digest, None)
                _put(entries, open_until_s, digest, entry)
            else:
                self._coming[digest] = self._num_read + 1, entry

    def _counts(self) -> Counts:
        refusals = Counter(entry.refusal for entry in self._entries.values())
        refusals[None] += len(self._coming)
        return Counts(
            num_keys=refusals.total(),
            num_revoked=refusals[Refusal.REVOKED],
            num_paused=refusals[Refusal.PAUSED],
            num_owner_inactive=refusals[Refusal.OWNER_INACTIVE],
            num_project_inactive=refusals[Refusal.PROJECT_INACTIVE],
        )

    def _find(self, authorization: bytes) -> _Entry:
        scheme, _, secret = authorization.partition(b" ")
        if scheme.lower() == _SCHEME:
            # An ordinary look-up: it compares keyed digests, and nobody can steer a digest
            # towards another one without the pepper, so its time tells nothing.
            for pepper in self._peppers:
                entry = self._entries.get(digest_of(secret, pepper))
                if entry is not None:
                    return entry
        raise KeyRefused(_reason(authorization))


def _reason(authorization: bytes) -> Refusal:
    """Why there is no key of this header. Most have one: only the others are looked at."""
    # A client without a key often sends the scheme alone.
    if authorization.strip().lower() in (b"", _SCHEME):
        return Refusal.MISSING
    scheme, _, secret = authorization.partition(b" ")
    is_key = scheme.lower() == _SCHEME and looks_like_key(secret)
    return Refusal.UNKNOWN if is_key else Refusal.MALFORMED


def _put(entries: dict[bytes, _Entry], open_until_s: _Ends, digest: bytes, entry: _Entry) -> None:
    entries[digest] = entry
    key_id = entry.caller.key_id
    assert key_id is not None
    if entry.refusal is None:
        ends_at_s = entry.expires_at_s
        open_until_s[key_id] = math.inf if ends_at_s is None else ends_at_s
    else:
        open_until_s.pop(key_id, None)


def _entry(row: KeyRow) -> _Entry:
    caller = Caller(
        user_id=row.owner_id,
        username=row.username,
        key_id=row.key_id,
        key_name=row.name,
        project_id=row.project_id,
        project_name=row.project_name,
        organization_id=row.organization_id,
        organization_name=row.organization_name,
        grants=read_grants(row.scopes, row.models, row.endpoints, row.networks),
        captures=row.capture_hours > 0,
    )
    expires_at_s = None if row.expires_at is None else row.expires_at.timestamp()
    return _Entry(caller, _refusal(row), expires_at_s)


def _refusal(row: KeyRow) -> Refusal | None:
    """What holds at any time; expiry is left to the moment of the call."""
    if row.revoked_at is not None:
        return Refusal.REVOKED
    if row.paused_at is not None:
        return Refusal.PAUSED
    if not row.is_owner_active:
        return Refusal.OWNER_INACTIVE
    if row.is_project_active and row.is_organization_active:
        return None
    return Refusal.PROJECT_INACTIVE
