"""The usage ledger of one web process.

The event loop calls `admit`, `checkpoint` and `settle`: each call appends a line to the process's
journal and returns. A thread reads the journal and stores settlements in the database, so memory
does not grow while the database is unavailable. When the process dies, `recovery` settles its open
requests from the journal.

The journal has disk space in reserve. While the disk is full, lines go into the reserve, and when
the reserve has only space for the settlements of open requests, no further request is admitted. So
each admitted request can be settled, and neither a full disk nor a kill loses it."""

import errno
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from django.db import close_old_connections, connections

from vinery_accounts.usage import entries
from vinery_accounts.usage.journal import Journal
from vinery_accounts.usage.recovery import BATCH_BYTES, Store
from vinery_accounts.usage.store import store_settlements

logger = logging.getLogger(__name__)

_COMPLAINT_INTERVAL_S = 60.0
# The disk space that is kept for the settlement of each open request. Lines of ordinary
# requests are below 1 KiB, and all texts in them have a bounded length.
_SETTLEMENT_BYTES = 4096
# After a failure to allocate disk space.
_ALLOCATION_INTERVAL_S = 1.0


class NoRoomForUsage(Exception):
    """The request is not admitted: neither journal nor database take its usage record."""


@dataclass(eq=False)
class UsageLedger:
    """Stores exactly one usage record for each admitted request. Raises OSError."""

    directory: Path
    _: KW_ONLY
    store: Store = store_settlements
    store_dead: Store = store_settlements  # of requests that are open at the end
    interval_s: float = 0.5
    max_journal_bytes: int = 8 * 1024 * 1024  # a larger one is rewritten without stored entries
    max_spilled: int = 10_000  # settlements in memory while the journal cannot be written
    reserve_bytes: int = 8 * 1024 * 1024  # disk space that is allocated before it is needed

    def __post_init__(self) -> None:
        # Guards the attributes below.
        self._lock = threading.Lock()
        self._journal = Journal.create(self.directory)
        self._requests = entries.OpenRequests()
        # Settlements that could not be written to the journal.
        self._spilled: list[entries.Settlement] = []
        self._allocate_after_s = 0.0
        # Settlements dropped because disk and memory were full. Normally 0.
        self.num_lost = 0
        self._complained_at_s = -_COMPLAINT_INTERVAL_S
        # Guards the attributes below, for one flush at a time.
        self._flushing = threading.Lock()
        self._stored_bytes = 0
        self._rewrite_at_bytes = self.max_journal_bytes
        self._stopping = threading.Event()
        # Something may have to be stored: the thread of an idle process sleeps.
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def backlog_bytes(self) -> int:
        return self._journal.size_bytes - self._stored_bytes

    @property
    def has_room(self) -> bool:
        with self._lock:
            return self._make_room(2 * _SETTLEMENT_BYTES)

    def admit(self, admission: entries.Admission) -> None:
        """Record the beginning of a request, which gets a usage record, also after a kill. A second
        admission of a running request replaces the first. Raises `NoRoomForUsage` while the disk is
        full and the reserve is used up."""
        line = entries.encode(admission)
        with self._lock:
            try:
                if not self._make_room(len(line) + _SETTLEMENT_BYTES):
                    raise OSError(errno.ENOSPC, "no space left for its lines")
                self._journal.append(line)
            except OSError as error:
                self._complain(error)
                raise NoRoomForUsage from error
            self._requests.take(admission)
        self._due.set()

    def checkpoint(self, progress: Iterable[entries.Progress]) -> None:
        """Record the usage of running requests so far, about once a second, in case of a kill."""
        checkpoint = entries.Checkpoint(tuple(progress))
        if not checkpoint.progress:
            return
        line = entries.encode(checkpoint)
        with self._lock:
            self._requests.take(checkpoint)
            # The lower half of the reserve is for admissions and settlements. A checkpoint that
            # was not written is followed by another one.
            if self._make_room(len(line), keeping=self.reserve_bytes // 2):
                try:
                    self._journal.append(line)
                except OSError as error:
                    self._complain(error)

    def settle(self, settlement: entries.Settlement) -> None:
        """Record that a request has ended. Only its first settlement counts."""
        line = entries.encode(settlement)
        with self._lock:
            self._requests.take(settlement)
            try:
                self._journal.append(line)
            except OSError as error:
                if len(self._spilled) < self.max_spilled:
                    self._spilled.append(settlement)
                else:
                    self.num_lost += 1
                self._complain(error)
        self._due.set()

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("the ledger has been started before")
        self._thread = threading.Thread(target=self._run, name="usage-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Store everything and close the journal. Call it when no request runs any more. Open
        requests are settled as interrupted. If the database is unavailable, the journal stays, and
        the next process recovers it."""
        if self._thread is None:
            self._finish()
        else:
            self._stopping.set()
            self._due.set()
            self._thread.join()

    def flush(self) -> None:
        """Store all settlements so far. Raises `django.db.Error`: the rest stays in the journal."""
        with self._flushing:
            while lines := self._journal.read(self._stored_bytes, BATCH_BYTES):
                found = entries.entries_in(lines)
                self.store([each for each in found if isinstance(each, entries.Settlement)])
                self._stored_bytes += len(lines)
            self._store_spilled()
            if self._journal.size_bytes >= self._rewrite_at_bytes:
                self._rewrite()

    def _run(self) -> None:
        delay_s = self.interval_s
        while self._due.wait() and not self._stopping.wait(delay_s):
            self._due.clear()
            delay_s = self._work(delay_s)
        # The connection of the last pass may be broken, and `_finish` is not repeated.
        connections.close_all()
        self._finish()
        connections.close_all()

    def _work(self, delay_s: float) -> float:
        """Store all entries. Returns the next delay, which doubles after each failure."""
        try:
            self.flush()
        except Exception:
            # The thread must go on after any failure: the records are stored by a later pass.
            connections.close_all()
            self._due.set()
            delay_s = min(delay_s * 2, 30.0)
            logger.exception("usage is not stored; next attempt in %.1f s", delay_s)
            return delay_s
        close_old_connections()
        return self.interval_s

    def _finish(self) -> None:
        try:
            self.flush()
            self.store_dead(list(self._requests.interrupted({})))
            self._journal.remove()
        except Exception:
            # The process is about to end. The journal stays on disk.
            logger.exception("usage stays in %s until the next start", self._journal.path)
        finally:
            self._journal.close()

    def _make_room(self, num_bytes: int, *, keeping: int = 0) -> bool:
        """Whether the journal has room for a line, for the settlements of open requests, and for
        the `keeping` bytes. Keeps the reserve full: one system call for some hundred requests."""
        wanted = num_bytes + _SETTLEMENT_BYTES * len(self._requests)
        if self._journal.room_bytes < wanted + self.reserve_bytes:
            now_s = time.monotonic()
            if now_s >= self._allocate_after_s:
                try:
                    self._journal.allocate(wanted + self.reserve_bytes)
                except OSError:
                    self._allocate_after_s = now_s + _ALLOCATION_INTERVAL_S
        return self._journal.room_bytes >= wanted + keeping

    def _complain(self, error: OSError) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_at_s < _COMPLAINT_INTERVAL_S:
            return
        self._complained_at_s = now_s
        logger.error(
            "cannot write the usage journal %s (%s); %d settlements wait in memory, %d are lost",
            self._journal.path,
            error,
            len(self._spilled),
            self.num_lost,
        )

    def _store_spilled(self) -> None:
        with self._lock:
            spilled = list(self._spilled)
        self.store(spilled)
        with self._lock:
            del self._spilled[: len(spilled)]

    def _rewrite(self) -> None:
        """Remove stored entries from the journal: the backlog is short, so writers hardly wait."""
        with self._lock:
            if self._spilled:
                return  # the journal has their admissions alone, and must keep them
            opened = b"".join(map(entries.encode, self._requests.entries()))
            backlog = self._journal.read(self._stored_bytes, self.backlog_bytes + 1)
            try:
                self._journal.replace(opened + backlog, self.reserve_bytes)
            except OSError as error:
                self._complain(error)
                return
            self._stored_bytes = len(opened)
            # Twice the size, so that many open requests do not cause a rewrite in every pass.
            self._rewrite_at_bytes = max(self.max_journal_bytes, 2 * self._journal.size_bytes)
