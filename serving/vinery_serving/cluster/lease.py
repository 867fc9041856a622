"""The lease of a host: which hosts live, and which of them leads.

On PostgreSQL the lease is a session of the database that holds the lock of the host. The session
asks the database a question every 2 s; the database's clock notes when. So a lease costs no commit,
which would let all web processes read their tables again, and no host's clock counts. A lease ends
10 s after the last question. The end stops no engine: it lets other hosts start more. The session
of a leader is then ended, so that another host leads.

A database on SQLite has one host. The lock of a file beside the database keeps others away.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.base.files import write_private

LEASE_S: Final = 10.0
RENEW_S: Final = 2.0
# A host without an answer for so long was held up, and knows nothing about the others.
_HELD_UP_S: Final = LEASE_S / 2
# The locks of hosts are this number and 32 bits of their ids; the leader has this number alone.
_LOCKS: Final = 0x56494E45
# In the place of a host: the agents of Ray.
_AGENTS: Final = 0
_AGENT: Final = "vinery agent on "


def host_id() -> UUID:
    """Return the id of this home, which its first process makes. Raises OSError."""
    return _id_in(Path(settings.VINERY_HOME) / "host")


@cache
def _id_in(path: Path) -> UUID:
    if not path.exists():
        write_private(path, str(uuid4()), replace=False)
    return UUID(path.read_text(encoding="ascii").strip())


@dataclass(frozen=True, slots=True)
class Lease:
    other_holder: str = ""  # who else is this host, or uses a database of one host; empty: nobody
    is_leader: bool = True  # this host places replicas and runs jobs


class HostLease:
    """Any thread may call the methods."""

    def __init__(self, number: int, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` of this node, with which others are refused."""
        self._name = name
        self._clock = clock
        self.number = number
        self._sessions: frozenset[int] = frozenset()  # the hosts that have one
        self._numbers: dict[str, float] = {
            "host": _LOCKS << 32 | number,
            "leader": _LOCKS,
            "locks": _LOCKS,
            "lease_s": LEASE_S,
        }
        self._connection: Any = None
        self._file: Any = None
        self._lock = threading.Lock()
        self._renewed_at_s: dict[int, float] = {}  # by `Host.number`, of this clock
        self._answered_at_s = self._back_at_s = -inf

    def renew(self) -> Lease:
        """Take or renew the lease. Raises `django.db.Error`."""
        if connection.vendor != "postgresql":
            holder = self._holder_of_file()
            return Lease(holder, is_leader=not holder)
        with self._lock:
            try:
                with connection.wrap_database_errors:
                    self._connection = self._connection or _connect(self._name)
                    row = self._connection.execute(_RENEW, self._numbers).fetchone()
            except DATABASE_UNAVAILABLE:
                self._close()
                raise
            holder, is_leader, ages_s, _ = row
            now_s = self._clock()
            if now_s - self._answered_at_s > _HELD_UP_S:
                self._back_at_s = now_s
            self._answered_at_s = now_s
            found = {int(number): now_s - age_s for number, age_s in ages_s.items()}
            self._renewed_at_s = self._renewed_at_s | found
            self._sessions = frozenset(found)
            copied = f"{holder}. If this home is a copy, delete the file `host` in it"
            return Lease(holder and copied, is_leader)

    def is_renewed(self, number: int) -> bool:
        """Whether a host held its lease when this one was renewed last."""
        return number in self._sessions or number == self.number

    def ended(self, numbers: Iterable[int] = ()) -> frozenset[int]:
        """Return which of these hosts, and of those of earlier calls, have no lease any more. One
        that was never seen counts from the first call, and all count from the time when this host
        was held up last: what held it up may have held up all. Does not wait for the database."""
        now_s = self._clock()
        seen = self._renewed_at_s = dict.fromkeys(numbers, now_s) | self._renewed_at_s
        if now_s - self._answered_at_s > _HELD_UP_S or now_s - self._back_at_s <= LEASE_S:
            return frozenset()
        return frozenset(each for each, at_s in seen.items() if now_s - at_s > LEASE_S)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        for each in (self._connection, self._file):
            if each is not None:
                each.close()
        self._connection = self._file = None

    def _holder_of_file(self) -> str:
        database = str(connection.settings_dict["NAME"])
        if self._file is not None or "mode=memory" in database:
            return ""
        file = Path(f"{database}.node").open("a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            number, _, holder = file.read().partition(" ")
            file.close()
            is_own = number in ("", str(self.number))  # a home has one supervisor
            return "" if is_own else f"{holder}. Several hosts need PostgreSQL: set DATABASE_URL"
        file.truncate(0)
        file.write(f"{self.number} {self._name}")
        file.flush()
        self._file = file
        return ""


class AgentLease(HostLease):
    """The lock of the agents of Ray."""

    def __init__(self, host: str) -> None:
        super().__init__(_AGENTS, f"{_AGENT}{host}")
        self._numbers["leader"] = self._numbers["host"]

    @property
    def is_open(self) -> bool:
        """Whether there is a session, which holds the lock or waits for it."""
        return self._connection is not None


class Agent(NamedTuple):
    host: str
    reaches_ray: bool
    acts: bool


def agents() -> list[Agent]:
    """The agents of Ray that run. One that does not reach Ray does not renew its lease. Raises
    `django.db.Error`."""
    with connection.cursor() as cursor:
        cursor.execute(_RUNNING_AGENTS, [LEASE_S, _LOCKS, _AGENTS, f"{_AGENT}%"])
        return [Agent(name.removeprefix(_AGENT), *row) for name, *row in cursor.fetchall()]


_RUNNING_AGENTS: Final = """
    SELECT application_name,
    clock_timestamp() - state_change <= %s * interval '1 second', EXISTS (
        SELECT FROM pg_locks WHERE pg_locks.pid = pg_stat_activity.pid
        AND locktype = 'advisory' AND granted AND classid = %s AND objid = %s
    ) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE %s ORDER BY application_name
"""
_RENEW: Final = """
    WITH leases AS MATERIALIZED (
        SELECT objid::bigint AS number, application_name AS name, coalesce(
            extract(epoch FROM clock_timestamp() - state_change), 0
        )::float AS age_s
        FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted AND classid = %(locks)s
        AND datname = current_database()
    ), own AS MATERIALIZED (SELECT pg_try_advisory_lock(%(host)s) AS is_own),
    -- A stopped process, or a proxy in between, would keep the session of a leader for ever.
    late AS MATERIALIZED (
        SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted
        AND classid::bigint << 32 | objid::bigint = %(leader)s AND pid <> pg_backend_pid()
        AND datname = current_database()
        AND clock_timestamp() - state_change > %(lease_s)s * interval '1 second'
    )
    SELECT
        CASE WHEN is_own THEN '' ELSE coalesce((
            SELECT name FROM leases WHERE number = (%(host)s & 4294967295)
        ), 'another process') END,
        CASE WHEN is_own THEN pg_try_advisory_lock(%(leader)s) ELSE false END,
        coalesce((SELECT json_object_agg(number, age_s) FROM leases), '{}'),
        (SELECT count(*) FROM late)
    FROM own
"""


def _connect(name: str) -> Any:
    import psycopg

    parameters = connection.get_connection_params()
    # When the host of the holder has died, the server notices it after some seconds.
    kept = " ".join(f"-c tcp_keepalives_{each}" for each in ("idle=5", "interval=2", "count=3"))
    named = {"application_name": name, "options": f"{parameters.get('options', '')} {kept}"}
    return psycopg.connect(**parameters | named, autocommit=True)
