"""Recovers the journals of dead processes: settles their requests and removes the files.

Several processes may run this at once, and each may be killed at any point: a journal is
adopted under its lock, records are unique by request id, and the file is removed last.
Processes take turns: a starting process reads usage next, which must include the journals
that another process has adopted.

An engine writes a file `*.lost` beside the journals for each gateway that died, with one line
for each generation: `[request_id, num_prompt_tokens, num_cached_tokens, num_output_tokens]`.
Several generations of one request are its samples, which share the prompt."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from vinery_accounts.usage.entries import OpenRequests, Progress, Settlement, entries_in
from vinery_accounts.usage.journal import Journal, journals_in, sweep_drafts
from vinery_accounts.usage.store import store_settlements

logger = logging.getLogger(__name__)

Store = Callable[[Sequence[Settlement]], None]

# About 500 settlements: one transaction of some ten milliseconds.
BATCH_BYTES = 256 * 1024

_MAX_TURN_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.02
_ENGINE_COUNTS_KEPT_S: Final = 24 * 3600.0


def store_then(settle_leases: Callable[[Sequence[str]], None]) -> Store:
    """Return a function that stores the settlements of dead processes, and then settles the leases
    of these requests on limits, by id. The function raises `django.db.Error`."""

    def store_and_settle(settlements: Sequence[Settlement]) -> None:
        store_settlements(settlements)
        settle_leases([settlement.admission.request_id for settlement in settlements])

    return store_and_settle


def recover_orphans(directory: Path, store: Store = store_settlements) -> int:
    """Settle the requests of all dead processes of this host, at the start of a web process and
    periodically in a job. Afterwards no other process recovers journals, unless one takes longer
    than `_MAX_TURN_S`. Returns the number of journals. Raises `django.db.Error`, and then the
    remaining journals stay."""
    num_journals = 0
    with _turn(directory):
        lost = read_engine_counts(directory)
        for path in journals_in(directory):
            try:
                if (journal := Journal.adopt(path)) is not None:
                    with closing(journal):
                        recover(journal, store, lost)
                    num_journals += 1
            except OSError:
                # One unreadable file must not block the others.
                logger.exception("cannot recover the usage journal %s", path)
        sweep_drafts(directory)
        sweep_engine_counts(directory)
    return num_journals


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Wait until no other process recovers, at most `_MAX_TURN_S`. After that both go on safely,
    because each journal has a lock."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY)
    try:
        end_at = time.monotonic() + _MAX_TURN_S
        while not _is_ours(fd):
            if time.monotonic() > end_at:
                logger.warning("another process still recovers the usage of dead processes")
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
        pass  # the file system cannot lock folders, but journals have their own locks
    return True


def recover(journal: Journal, store: Store, lost: Mapping[str, Progress]) -> None:
    """Store the settlements, settle open requests as interrupted, and remove the journal. `lost`
    are the token counts of engines, by request id (`read_engine_counts`)."""
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
    interrupted = list(requests.interrupted(lost))
    store(interrupted)
    journal.remove()
    logger.warning(
        "recovered the usage of a dead process: %d requests, and %d interrupted ones",
        num_settled,
        len(interrupted),
    )


def read_engine_counts(directory: Path) -> dict[str, Progress]:
    """Return the counts by request id. A file that cannot be read is logged and skipped."""
    found: dict[str, Progress] = {}
    for path in sorted(directory.glob("*.lost")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            for request_id, num_prompt, num_cached, num_output in map(json.loads, lines):
                _, prompt, cached, output, _ = found.get(request_id, ("", 0, 0, 0, 0))
                found[request_id] = (
                    request_id,
                    max(prompt, int(num_prompt)),
                    max(cached, int(num_cached)),
                    output + int(num_output),
                    0,
                )
        except (OSError, ValueError, TypeError):
            logger.exception("skipped the unreadable token counts of a dead gateway in %s", path)
    return found


def sweep_engine_counts(directory: Path) -> None:
    """Remove files older than a day: their requests have been settled."""
    for path in directory.glob("*.lost"):
        if time.time() - path.stat().st_mtime > _ENGINE_COUNTS_KEPT_S:
            path.unlink(missing_ok=True)
