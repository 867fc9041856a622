"""Authentication of API keys from memory, without SQL.

A thread beside the event loop calls `refresh()` about once a second. A revoked or paused key, and a
key of a deactivated owner or project, is refused from the next refresh on; an expired key is
refused at once. New keys can be held back until their limits are read too: then `follow()` and
`admit()` are the two halves of a refresh.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from django.db import connection, models
from django.db.models.functions import Cast

from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.base.querysets import Stamped
from vinery_accounts.keys.grants import ALL, Grants, read_grants
from vinery_accounts.keys.secrets import digest_of, key_peppers, looks_like_key
from vinery_accounts.models import ApiKey, Organization, Project, Scope, User
from vinery_accounts.usage.entries import Owners

# How long after its `updated_at` a row may become visible: the longest transaction that writes
# keys or users, plus the clock difference of two hosts.
OVERLAP_S = 30.0
_SCHEME = b"bearer"
MAX_END_USER: Final = 64  # characters, as of OpenAI's safety_identifier


# -- Queries: counts of all keys, recent changes, and rows


class KeyRow(NamedTuple):
    """One key with columns of its owner, project and organisation, named by their lookups."""

    id: int
    digest: str
    name: str
    # JSON as text: most keys have the same lists, so each text is parsed only once.
    scopes_text: str
    allowed_models_text: str
    allowed_endpoints_text: str
    allowed_networks_text: str
    expires_at: datetime | None
    revoked_at: datetime | None
    paused_at: datetime | None
    owner_id: int
    owner__username: str
    owner__is_active: bool
    owner__is_superuser: bool
    project_id: int
    project__name: str
    project__is_active: bool
    project__capture_hours: int
    project__hashes_end_users: bool
    project__response_days: int | None
    project__max_stored_mb: int
    project__organization_id: int
    project__organization__name: str
    project__organization__is_active: bool


class Counts(NamedTuple):
    """Numbers of all keys and of refused keys, each counted for its first reason in this order."""

    num_keys: int
    num_revoked: int
    num_paused: int
    num_owner_inactive: int
    num_project_inactive: int


Stamps = Mapping[type[Stamped], Mapping[int, object]]
"""`updated_at` by primary key, for each model, in the type that the database returns."""

# Scalar subqueries: an index answers each of them, but not several aggregates over one table.
_KEYS, _USERS = ApiKey._meta.db_table, User._meta.db_table
_PROJECTS, _ORGANIZATIONS = Project._meta.db_table, Organization._meta.db_table
_INACTIVE_OWNERS = f"(SELECT id FROM {_USERS} WHERE NOT is_active)"
_INACTIVE_PROJECTS = (
    f"(SELECT id FROM {_PROJECTS} WHERE NOT is_active UNION "
    f"SELECT id FROM {_PROJECTS} WHERE organization_id IN "
    f"(SELECT id FROM {_ORGANIZATIONS} WHERE NOT is_active))"
)
_VALID = "revoked_at IS NULL AND paused_at IS NULL"
_COUNTS_SQL = f"""
SELECT (SELECT COUNT(*) FROM {_KEYS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE revoked_at IS NOT NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE paused_at IS NOT NULL AND revoked_at IS NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_VALID} AND owner_id IN {_INACTIVE_OWNERS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_VALID} AND project_id IN {_INACTIVE_PROJECTS}
           AND owner_id NOT IN {_INACTIVE_OWNERS}),
       (SELECT COUNT(*) FROM {_USERS} WHERE is_superuser)
"""

_TEXTS = {
    f"{name}_text": Cast(name, models.TextField())
    for name in ("scopes", "allowed_models", "allowed_endpoints", "allowed_networks")
}
_CHUNK_ROWS = 2000

# The models whose columns a row has, and the lookup from each of them to keys.
_LOOKUPS: Final[Mapping[type[Stamped], str]] = {
    ApiKey: "pk",
    User: "owner",
    Project: "project",
    Organization: "project__organization",
}


# By the ORM, such queries take twenty times as long to build as to run.
_STAMPS_SQL = " UNION ALL ".join(
    f"SELECT {number}, id, updated_at FROM {table._meta.db_table} WHERE updated_at >= %s"
    for number, table in enumerate(_LOOKUPS)
)


def read_counts() -> tuple[Counts, int]:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS_SQL)
        *counts, num_superusers = cursor.fetchone()
    return Counts(*counts), num_superusers


def all_rows() -> Iterator[KeyRow]:
    return _rows(ApiKey.objects.all())


def stamps_since(moment: datetime) -> Stamps:
    since = connection.ops.adapt_datetimefield_value(moment)
    stamps: list[dict[int, object]] = [{} for _ in _LOOKUPS]
    with connection.cursor() as cursor:
        cursor.execute(_STAMPS_SQL, [since] * len(stamps))
        for number, pk, stamp in cursor.fetchall():
            stamps[number][pk] = stamp
    return dict(zip(_LOOKUPS, stamps, strict=True))


def rows_of(ids: Mapping[type[Stamped], Sequence[int]]) -> Iterator[KeyRow]:
    """The rows of these keys, and of the keys of these users, projects and organisations. One query
    for each model, because an OR over several tables would read every key."""
    for table, wanted in ids.items():
        for first in range(0, len(wanted), _CHUNK_ROWS):
            chunk = {f"{_LOOKUPS[table]}__in": wanted[first : first + _CHUNK_ROWS]}
            yield from _rows(ApiKey.objects.filter(**chunk))


def _rows(keys: models.QuerySet[ApiKey]) -> Iterator[KeyRow]:
    columns = keys.order_by().annotate(**_TEXTS).values_list(*KeyRow._fields)
    return (KeyRow(*row) for row in columns.iterator(chunk_size=_CHUNK_ROWS))


# -- Callers and keys


class Storage(NamedTuple):
    """For how many days responses of a project are kept (0: not at all), and how many bytes they
    may take (0: no limit)."""

    days: int = 0
    max_bytes: int = 0


class Caller(Owners, frozen=True, kw_only=True):
    """The user, key and project of a request. Ids are None without authentication."""

    username: str
    key_name: str
    project_name: str = ""
    organization_name: str = ""
    grants: Grants = ALL
    captures: bool = False  # whether the project keeps texts of requests
    hashes_end_users: bool = False  # in usage records
    storage: Storage = Storage()


# The caller of every request when the server runs without keys (`VINERY_AUTH=off`).
ANONYMOUS = Caller(user_id=None, username="anonymous", key_id=None, key_name="")


class _Entry(msgspec.Struct, frozen=True):
    caller: Caller
    refusal: Refusal | None
    expires_at_s: float | None  # Unix time


KeyEntries = dict[bytes, _Entry]
"""Admitted keys by digest."""


class KeyTable:
    """All keys by digest. One thread may refresh while another authenticates."""

    def __init__(
        self, peppers: Mapping[int, bytes] | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`peppers` None uses those of the settings. `clock` returns Unix time in seconds."""
        numbered = key_peppers() if peppers is None else peppers
        self._peppers = tuple(pepper for _, pepper in sorted(numbered.items(), reverse=True))
        self._clock = clock
        self._entries: KeyEntries = {}
        self._by_id: dict[int | None, _Entry] = {}
        # New valid keys that are not admitted yet: by digest, with the number of their reading.
        self._pending: dict[bytes, tuple[int, _Entry]] = {}
        self.num_read = 0  # how often `follow` has read the database
        # Of clients without keys: as of the first project.
        self.anonymous_storage = Storage()
        self._stamps: Stamps = {}  # of recent changes that are read already
        self._num_superusers = 0
        self._read_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._entries) + len(self._pending)

    def authenticate(self, authorization: bytes | str | None) -> Caller:
        """The caller behind the value of an `Authorization` header. Raises `KeyRefused`."""
        if isinstance(authorization, str):
            authorization = authorization.encode("utf-8", "replace")
        return self._valid(self._find(authorization or b""))

    def caller(self, key_id: int) -> Caller:
        """The caller of a key. Raises `KeyRefused` for a key that is not valid now."""
        if (entry := self._by_id.get(key_id)) is None:
            raise KeyRefused(Refusal.UNKNOWN)
        return self._valid(entry)

    def is_valid(self, key_id: int) -> bool:
        try:
            self.caller(key_id)
        except KeyRefused:
            return False
        return True

    def _valid(self, entry: _Entry) -> Caller:
        if entry.refusal is not None:
            raise KeyRefused(entry.refusal)
        if entry.expires_at_s is not None and self._clock() >= entry.expires_at_s:
            raise KeyRefused(Refusal.EXPIRED)
        return entry.caller

    @property
    def entries(self) -> KeyEntries:
        """The keys in force now, for a process that starts without the database."""
        return self._entries.copy()

    def assume(self, entries: KeyEntries) -> None:
        """Authenticate with these keys until the first `follow`, which reads all."""
        self._entries = entries
        self._by_id = {entry.caller.key_id: entry for entry in entries.values()}

    def refresh(self) -> None:
        self.follow()
        self.admit(self.num_read)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def admit(self, num_read: int) -> None:
        """Admit the new keys of the readings up to `num_read`. Called by the thread of `follow`."""
        for digest, (num_reading, entry) in list(self._pending.items()):
            if num_reading <= num_read:
                del self._pending[digest]
                self._entries[digest] = self._by_id[entry.caller.key_id] = entry

    def follow(self) -> None:
        """Read changes of the database. New keys wait for `admit`, except at the first reading. Two
        queries if nothing has changed. Raises `django.db.Error`; the table then keeps its
        content."""
        now_s = self._clock()
        # Before the rows: what is written between the queries is read at the next refresh. A
        # change is read once, not at each refresh in the overlap.
        counts, num_superusers = read_counts()
        # `min`, because the clock may have been set back since.
        since_s = min(self._read_at_s or now_s, now_s) - OVERLAP_S
        stamps = stamps_since(datetime.fromtimestamp(since_s, UTC))
        is_first, changed = self._read_at_s is None, self._changed(stamps)
        if not is_first:
            self._take(rows_of(changed), self._entries, self._by_id)
        # Deleted rows, and changes by plain SQL, have no new `updated_at`.
        if is_first or self._counts() != counts or self._num_superusers != num_superusers:
            self._load()
        if is_first or changed[Project]:
            columns = Project.objects.order_by("pk").values_list("response_days", "max_stored_mb")
            self.anonymous_storage = _storage(*(columns.first() or (None, 0)))
        self._stamps, self._num_superusers, self._read_at_s = stamps, num_superusers, now_s
        self.num_read += 1

    def _changed(self, stamps: Stamps) -> dict[type[Stamped], list[int]]:
        return {
            table: [id_ for id_, stamp in found.items() if known.get(id_) != stamp]
            for table, found in stamps.items()
            for known in [self._stamps.get(table, {})]
        }

    def _load(self) -> None:
        entries: dict[bytes, _Entry] = {}
        by_id: dict[int | None, _Entry] = {}
        self._pending = {}
        self._take(all_rows(), entries, by_id)
        self._entries, self._by_id = entries, by_id

    def _take(
        self, rows: Iterable[KeyRow], entries: dict[bytes, _Entry], by_id: dict[int | None, _Entry]
    ) -> None:
        known, is_first = self._entries, self._read_at_s is None
        for row in rows:
            digest, entry = bytes.fromhex(row.digest), _entry(row)
            if is_first or digest in known or entry.refusal is not None:
                self._pending.pop(digest, None)
                entries[digest] = by_id[row.id] = entry
            else:
                self._pending[digest] = self.num_read + 1, entry

    def _counts(self) -> Counts:
        refusals = Counter(entry.refusal for entry in self._entries.values())
        refusals[None] += len(self._pending)
        return Counts(
            num_keys=refusals.total(),
            num_revoked=refusals[Refusal.REVOKED],
            num_paused=refusals[Refusal.PAUSED],
            num_owner_inactive=refusals[Refusal.OWNER_INACTIVE],
            num_project_inactive=refusals[Refusal.PROJECT_INACTIVE],
        )

    def _find(self, authorization: bytes) -> _Entry:
        if secret := _bearer_token(authorization):
            # An ordinary look-up is safe: without the pepper a client cannot choose a digest, so
            # the time of the comparison reveals nothing.
            for pepper in self._peppers:
                entry = self._entries.get(digest_of(secret, pepper))
                if entry is not None:
                    return entry
            raise KeyRefused(Refusal.UNKNOWN if looks_like_key(secret) else Refusal.MALFORMED)
        # A client without a key often sends only the scheme.
        is_missing = authorization.strip().lower() in (b"", _SCHEME)
        raise KeyRefused(Refusal.MISSING if is_missing else Refusal.MALFORMED)


def _bearer_token(authorization: bytes) -> bytes:
    """The bearer token without the white space around it (RFC 9110, 5.5 and 11.4). Empty for other
    schemes."""
    scheme, _, secret = authorization.strip().partition(b" ")
    return secret.strip() if scheme.lower() == _SCHEME else b""


def _entry(row: KeyRow) -> _Entry:
    caller = Caller(
        user_id=row.owner_id,
        username=row.owner__username,
        key_id=row.id,
        key_name=row.name,
        project_id=row.project_id,
        project_name=row.project__name,
        organization_id=row.project__organization_id,
        organization_name=row.project__organization__name,
        grants=read_grants(
            row.scopes_text,
            row.allowed_models_text,
            row.allowed_endpoints_text,
            row.allowed_networks_text,
        ),
        captures=row.project__capture_hours > 0,
        hashes_end_users=row.project__hashes_end_users,
        storage=_storage(row.project__response_days, row.project__max_stored_mb),
    )
    expires_at_s = None if row.expires_at is None else row.expires_at.timestamp()
    return _Entry(caller, _refusal(row, caller.grants), expires_at_s)


def _storage(days: int | None, max_mb: int) -> Storage:
    return Storage(days or 0, max_mb * 2**20)


def _refusal(row: KeyRow, grants: Grants) -> Refusal | None:
    """Why the key is refused, if it is. Expiry is checked at each request."""
    if row.revoked_at is not None:
        return Refusal.REVOKED
    if row.paused_at is not None:
        return Refusal.PAUSED
    if not row.owner__is_active:
        return Refusal.OWNER_INACTIVE
    if not (row.project__is_active and row.project__organization__is_active):
        return Refusal.PROJECT_INACTIVE
    # Last: the counts of the fingerprint do not have this reason.
    is_demoted = Scope.ADMIN in grants.scopes and not row.owner__is_superuser
    return Refusal.OWNER_DEMOTED if is_demoted else None


# -- End users ----------------------------------------------------------------------------------


def stored_end_user(end_user: str, caller: Caller) -> str:
    """Return the name of an end user for usage records: the beginning, or a hash if the caller's
    project has this setting. The hash is keyed, since ids and addresses can be guessed, and differs
    by project."""
    if not (end_user and caller.hashes_end_users):
        return end_user.replace("\0", "")[:MAX_END_USER]  # PostgreSQL refuses it
    peppers = key_peppers()
    named = f"end user {caller.project_id}\0{end_user}".encode("utf-8", "replace")
    return digest_of(named, peppers[min(peppers)]).hex()
