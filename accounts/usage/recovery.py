"""The books of dead processes: their journals become rows, then go.

Safe to run in any number of processes at once, and to be killed at any point: a journal is
adopted under its lock, rows are inserted once by request id, and the file goes last. Finders
take turns, because who starts reads the books next: the rows of a journal that another finder
has adopted must be among them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accounts.usage.entries import OpenRequests, Progress, Settlement, entries_in
from accounts.usage.journal import Journal, journals_in, sweep_drafts
from accounts.usage.lost import read_engine_counts, sweep_engine_counts
from accounts.usage.store import store_settlements

logger = logging.getLogger(__name__)

Store = Callable[[Sequence[Settlement]], None]
# Settles the leases on limits of these requests, whose usage records are stored.
SettleLeases = Callable[[Sequence[str]], None]

# About 500 settlements: one transaction of some ten milliseconds.
BATCH_BYTES = 256 * 1024

_MAX_TURN_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found in journals. Settled rows may have been stored before."""

    num_journals: int = 0
    num_settled: int = 0
    num_interrupted: int = 0

    def __add__(self, other: Recovered) -> Recovered:
        return Recovered(
            self.num_journals + other.num_journals,
            self.num_settled + other.num_settled,
            self.num_interrupted + other.num_interrupted,
        )


def store_then(settle_leases: SettleLeases) -> Store:
    """Return a function that stores the settlements of dead processes, and then settles the leases
    that their requests had on limits. It raises `django.db.Error`."""

    def store_and_settle(settlements: Sequence[Settlement]) -> None:
        store_settlements(settlements)
        settle_leases([settlement.admission.request_id for settlement in settlements])

    return store_and_settle


def recover_orphans(directory: Path, store: Store = store_settlements) -> Recovered:
    """Settle the requests of all processes of this host that died.

    Run it when a web process starts, and now and then from a job. When it returns, nobody else
    is at it, unless they take longer than half a minute. Raises `django.db.Error` when the
    database is away; what is left is for the next time.
    """
    with _turn(directory):
        return _recover_orphans(directory, store)


def _recover_orphans(directory: Path, store: Store) -> Recovered:
    total = Recovered()
    lost = read_engine_counts(directory)
    for path in journals_in(directory):
        try:
            total += _recover_if_orphan(path, store, lost)
        except OSError:
            # One file that cannot be read or removed must not keep the others waiting.
            logger.exception("cannot recover the usage journal %s", path)
    sweep_drafts(directory)
    sweep_engine_counts(directory)
    if total.num_journals:
        logger.warning("recovered the usage of processes that died: %s", total)
    return total


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Be the only finder. Whoever waits in vain goes on beside the other: journals have locks."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY)
    try:
        end_at = time.monotonic() + _MAX_TURN_S
        while not _is_ours(fd):
            if time.monotonic() > end_at:
                logger.warning("another process still recovers the usage of those that died")
                break
            time.sleep(_LOOK_INTERVAL_S)
        yield
    finally:
        os.close(fd)


def _is_ours(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system that locks no folders: its journals have locks all the same
    return True


def _recover_if_orphan(path: Path, store: Store, lost: Mapping[str, Progress]) -> Recovered:
    journal = Journal.adopt(path)
    if journal is None:
        return Recovered()
    with closing(journal):
        return recover(journal, store, lost)


def recover(
    journal: Journal, store: Store, lost: Mapping[str, Progress] | None = None
) -> Recovered:
    """Store what was settled, settle the rest as interrupted, remove the journal.

    `lost`: what engines know of requests whose gateway died.
    """
    requests = OpenRequests()
    num_settled = offset = 0
    while lines := journal.read(offset, BATCH_BYTES):
        settled = []
        for entry in entries_in(lines):
            requests.take(entry)
            if isinstance(entry, Settlement):
                settled.append(entry)
        store(settled)
        num_settled += len(settled)
        offset += len(lines)
    interrupted = list(requests.interrupted(lost or {}))
    store(interrupted)
    journal.remove()
    return Recovered(1, num_settled, len(interrupted))
