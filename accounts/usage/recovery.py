"""The books of dead processes: their journals become rows, then go.

Safe to run in any number of processes at once, and to be killed at any point: a journal is
adopted under its lock, rows are inserted once by request id, and the file goes last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from accounts.usage.entries import OpenRequests, Progress, Settlement, entries_in
from accounts.usage.journal import Journal, journals_in, sweep_drafts
from accounts.usage.lost import read_lost, sweep_lost
from accounts.usage.store import store_settlements

logger = logging.getLogger(__name__)

Store = Callable[[Sequence[Settlement]], None]

# About 500 settlements: one transaction of some ten milliseconds.
BATCH_BYTES = 256 * 1024


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


def recover_orphans(directory: Path, store: Store = store_settlements) -> Recovered:
    """Settle the requests of all processes of this host that died.

    Run it when a web process starts, and now and then from a job. Raises `django.db.Error`
    when the database is away; what is left is for the next time.
    """
    total = Recovered()
    lost = read_lost(directory)
    for path in journals_in(directory):
        try:
            total += _recover_if_orphan(path, store, lost)
        except OSError:
            # One file that cannot be read or removed must not keep the others waiting.
            logger.exception("cannot recover the usage journal %s", path)
    sweep_drafts(directory)
    sweep_lost(directory)
    if total.num_journals:
        logger.warning("recovered the usage of processes that died: %s", total)
    return total


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
