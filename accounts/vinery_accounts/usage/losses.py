"""The requests that were lost: admitted, but killed together with their process before their
settlements were written.

This needs a disk that fails in the middle of a request, because the journal has disk space in
reserve. Recovery reports what it finds in a file, which `vinery usage verify` reads.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "lost_requests.txt"


class Loss(msgspec.Struct, frozen=True):
    """A process died at about this time, with so many requests that have no exact record."""

    found_at: datetime
    num_requests: int

    def __str__(self) -> str:
        return (
            f"{self.found_at:%Y-%m-%d %H:%M}: a process was killed that could not write the usage "
            f"of {self.num_requests} requests"
        )


def report(directory: Path, num_requests: int) -> None:
    """Add a line to the file. Raises OSError."""
    loss = Loss(datetime.now(UTC), num_requests)
    with (directory / _FILE).open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(loss) + b"\n")


def read(directory: Path, since: datetime, until: datetime) -> Iterator[Loss]:
    """Yield the losses that were found in the period. Raises OSError."""
    file = directory / _FILE
    if not file.exists():
        return
    for line in file.read_bytes().splitlines():
        loss = msgspec.json.decode(line, type=Loss)
        if since <= loss.found_at < until:
            yield loss
