"""What the supervisor of a home has written about itself, for other commands of this machine."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass

from vinery_platform.config.home import Home, write_private

_NAME = "server.json"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A supervisor that runs. `base_url` is the root URL for clients of this machine."""

    pid: int
    base_url: str
    started_at_s: float  # of the wall clock
    version: str


def write(home: Home, base_url: str, version: str) -> RunningServer:
    """Note this process as the supervisor: it holds the lock of the home. Raises OSError."""
    server = RunningServer(os.getpid(), base_url, time.time(), version)
    write_private(home.run / _NAME, json.dumps(asdict(server)) + "\n")
    return server


def read(home: Home) -> RunningServer | None:
    """The supervisor that runs with this home; None if none does, or if it has not noted itself
    yet. What a dead one has left does not count."""
    pid = home.supervisor_pid()
    if pid is None:
        return None
    try:
        server = RunningServer(**json.loads((home.run / _NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.pid == pid else None
