"""The home folder, `VINERY_HOME`, which holds all state, the folders that belong to the code, and
notes in the home: the first credentials, and the supervisor.

A wheel has the folders `templates` and `models` inside the package.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from vinery_accounts.base.files import write_private
from vinery_platform.config import env
from vinery_platform.config.env import SettingError

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_LOCK_ATTEMPTS = 10
_LOCK_PAUSE_S = 0.02
_SERVER = "server.json"


def _repository() -> Path | None:
    """The clone that this code runs from; None for an installed package."""
    root = _PACKAGE.parents[1]
    is_clone = root / "platform" / _PACKAGE.name == _PACKAGE and (root / "pyproject.toml").is_file()
    return root if is_clone else None


REPOSITORY: Final = _repository()
TEMPLATES: Final = (REPOSITORY or _PACKAGE) / "templates"
MODELS: Final = (REPOSITORY or _PACKAGE) / "models"


class Home:
    """The paths in a home folder. `create` creates the folders."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path / "run"  # sockets and locks of running processes; not needed after a stop
        self.cache = path / "cache"  # data that can be computed again, such as compiled models
        self.usage = path / "usage"  # usage journals that are not in the database yet
        self.secrets = path / "secrets"  # one file for each secret
        self.models = path / "models"  # pulled models, by repository and commit
        self.environments = path / "environments"  # Python packages that convert checkpoints
        self.logs = path / "logs"  # one log for each process
        self.bootstrap_file = path / "bootstrap.json"  # the first credentials

    @classmethod
    def from_env(cls) -> Home:
        """The home folder in VINERY_HOME, by default `var` in a clone of the repository, and in
        the user's data folder without one. A configuration file may have set VINERY_HOME."""
        return cls(Path(env.text("VINERY_HOME", str(default_path()))).expanduser().resolve())

    def missing(self) -> SettingError:
        return SettingError(
            f"There is no Vinery home at {self.path}. Start it with `vinery up`, or set "
            "VINERY_HOME to the home folder of your installation."
        )

    def create(self) -> None:
        """Create all folders, with mode 0700, and close a home that others may open.

        Raises `SettingError` if that fails, and for a folder that is not for Vinery alone.
        """
        folders = (self.run, self.cache, self.usage, self.secrets, self.logs)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close()
            for folder in folders:
                folder.mkdir(mode=0o700, exist_ok=True)
                _forbid_others(folder)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SettingError(
                f"VINERY_HOME={self.path} cannot be written: {reason}. "
                "Set VINERY_HOME to a folder that this user may write to."
            ) from error

    def _close(self) -> None:
        """Forbid other users the folder and the files in it, such as the database. Raises OSError,
        and `SettingError` for a folder of another user, or one that is shared."""
        # Such as /tmp, or the root folder.
        if self.path.stat().st_mode & stat.S_ISVTX or self.path == self.path.parent:
            raise SettingError(
                f"VINERY_HOME={self.path} is shared with other users. "
                "Set VINERY_HOME to a new folder in it."
            )
        try:
            _forbid_others(self.path)
        except PermissionError:
            raise SettingError(
                f"VINERY_HOME={self.path} belongs to another user, and others may open it. "
                "Set VINERY_HOME to a new folder in it, or change its owner or its mode to 0700."
            ) from None
        for file in self.path.iterdir():
            if file.is_file() and not file.is_symlink():
                _forbid_others(file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the only supervisor, at most until this process dies.

        Raises `SettingError` if another process holds it.
        """
        with (self.run / "supervisor.lock").open("a+", encoding="ascii") as lock:
            if not _lock(lock.fileno()):
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise SettingError(
                    f"The home folder {self.path} is in use by process {holder}. "
                    "Stop that one, or set VINERY_HOME to another folder."
                )
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def supervisor_pid(self) -> int | None:
        """Return the process that holds the lock; None if no process does. Raises `SettingError`
        for the home of another user."""
        try:
            with (self.run / "supervisor.lock").open(encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = lock.read().strip()
                    return int(holder) if holder.isdecimal() else None
        except (FileNotFoundError, NotADirectoryError):
            pass
        except PermissionError as error:
            raise SettingError(
                f"The home folder {self.path} cannot be read: permission denied. Run this as the "
                "user that runs `vinery up`."
            ) from error
        return None


def _lock(fd: int) -> bool:
    """Lock a file for this process alone. Commands that look for the holder share the lock for a
    moment, so one refusal is not enough."""
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def default_path() -> Path:
    if REPOSITORY is not None:
        return REPOSITORY / "var"
    from platformdirs import user_data_path  # 10 ms, for nothing in a clone

    return user_data_path("vinery", appauthor=False)


def _forbid_others(path: Path) -> None:
    """Take the rights of the group and of others. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        path.chmod(mode & 0o700)


# -- Notes


@dataclass(frozen=True, slots=True)
class Credentials:
    """The first credentials, which the first start writes to `bootstrap.json`. A deleted file never
    comes back: the password is stored nowhere else. `base_url` is the root URL, without `/v1`."""

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
