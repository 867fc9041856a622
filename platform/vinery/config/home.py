"""The home folder, `VINERY_HOME`: it holds all state."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vinery.config import env
from vinery.config.env import SettingError

# `platform/vinery/config/home.py` is three folders below the repository.
REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Home:
    """The paths in a home folder. `create` creates the folders."""

    path: Path

    @classmethod
    def from_env(cls) -> Home:
        """The home folder in VINERY_HOME, by default `var` in the repository."""
        return cls(env.folder("VINERY_HOME", REPOSITORY / "var"))

    @property
    def run(self) -> Path:
        """Sockets and locks of running processes. Not needed after a stop."""
        return self.path / "run"

    @property
    def cache(self) -> Path:
        """Data that can be computed again, such as compiled models."""
        return self.path / "cache"

    @property
    def usage(self) -> Path:
        """Usage journals that are not stored in the database yet."""
        return self.path / "usage"

    @property
    def static(self) -> Path:
        """Collected static files."""
        return self.path / "static"

    @property
    def secrets(self) -> Path:
        """One file for each secret."""
        return self.path / "secrets"

    @property
    def broker(self) -> Path:
        """Messages to the jobs process, without Redis."""
        return self.path / "broker"

    @property
    def bootstrap_file(self) -> Path:
        """The first credentials, for users and scripts."""
        return self.path / "bootstrap.json"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor while it runs."""
        return self.run / "supervisor.lock"

    def create(self) -> None:
        """Create all folders, with mode 0700. Raises `SettingError` if that fails."""
        folders = (self.run, self.cache, self.usage, self.static, self.secrets, self.broker)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in folders:
                folder.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SettingError(
                f"VINERY_HOME={self.path} cannot be written: {reason}. "
                "Set VINERY_HOME to a folder that this user may write to."
            ) from error


def write_private(path: Path, content: str, *, replace: bool = True) -> bool:
    """Write a file with mode 0600 atomically.

    Returns False without a change if the file exists and `replace` is False. Safe if several
    processes do it at once. Raises OSError.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return _publish(draft, path, replace=replace)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _publish(draft: Path, path: Path, *, replace: bool) -> bool:
    if replace:
        draft.replace(path)
        return True
    try:
        # Unlike a rename, a link fails if the name exists.
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    return True
