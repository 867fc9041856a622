"""Notes in the home for users and commands: the first credentials, and the supervisor.

The first start writes `bootstrap.json`. Later starts only update the URL, and never recreate a
deleted file: the password is stored nowhere else.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vinery_accounts.base.files import write_private
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home

_SERVER = "server.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`base_url` is the root URL, without `/v1`."""

    base_url: str
    api_key: str
    admin_user: str
    admin_password: str

    @classmethod
    def read(cls, file: Path) -> Credentials | None:
        """None without a file. Raises `SettingError` if it is invalid."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise SettingError(f"{file} cannot be read ({error}). Correct or delete it.") from error

    def write(self, file: Path) -> None:
        """Write the file atomically, with mode 0600. Raises OSError."""
        write_private(file, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def update_url(cls, file: Path, base_url: str) -> None:
        """Update the URL if host or port have changed. Does nothing without a file."""
        known = cls.read(file)
        if known and known.base_url != base_url:
            replace(known, base_url=base_url).write(file)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A supervisor that runs. `base_url` is the root URL for clients of this machine."""

    pid: int
    base_url: str
    started_at_s: float  # of the wall clock
    version: str

    @classmethod
    def write(cls, home: Home, base_url: str, version: str) -> RunningServer:
        """Note this process as the supervisor: it holds the lock of the home. Raises OSError."""
        server = cls(os.getpid(), base_url, time.time(), version)
        write_private(home.run / _SERVER, json.dumps(asdict(server)) + "\n")
        return server

    @classmethod
    def read(cls, home: Home) -> RunningServer | None:
        """The supervisor that runs with this home; None without a supervisor, or before its first
        note. The note of a dead supervisor does not count."""
        pid = home.supervisor_pid()
        if pid is None:
            return None
        try:
            server = cls(**json.loads((home.run / _SERVER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return server if server.pid == pid else None
