"""The folders of pulled models.

    models/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/             complete, under its final name
    models/.partial/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/    a pull that has not ended
        whole/          files that are complete and checked, by their names
        unfinished/     the beginnings of others
        lock            held by the process that pulls

The second name is the commit, so that a new version does not touch the files of one that is
served; of a part of a repository it ends with a digest of the patterns.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.repository import Repository

_PARTIAL: Final = ".partial"
_SAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PullFolders:
    """The folders of one pull. `root` is that of all models."""

    root: Path
    name: str
    version: str

    @classmethod
    def of_repository(
        cls, root: Path, repository: Repository, patterns: Sequence[str] = ()
    ) -> Self:
        version = repository.commit[:12]
        if patterns:
            version += f"-{_short_digest(chr(0).join(sorted(patterns)))}"
        return cls(root, repository.name.replace("/", "--"), version)

    @classmethod
    def of_text(cls, root: Path, text: str, hint: str) -> Self:
        """Return those of what has no commit, such as a URL; `hint` is for readers."""
        name = _SAFE.sub("-", hint).strip(".-")[:80] or "model"
        return cls(root, name, _short_digest(text))

    @property
    def final(self) -> Path:
        return self.root / self.name / self.version

    @property
    def partial(self) -> Path:
        return self.root / _PARTIAL / self.name / self.version

    @property
    def whole(self) -> Path:
        return self.partial / "whole"

    def unfinished(self, path: str) -> Path:
        """Return where the beginning of a file is kept."""
        return self.partial / "unfinished" / _short_digest(path, 32)

    def create(self) -> None:
        """Create the folders of the pull. Raises OSError."""
        self.whole.mkdir(parents=True, exist_ok=True)
        (self.partial / "unfinished").mkdir(exist_ok=True)

    def empty_whole(self) -> None:
        """Remove the files that an attempt has made which cannot be continued. Raises OSError."""
        shutil.rmtree(self.whole)
        self.whole.mkdir()

    def finish(self) -> Path:
        """Give the complete folder its final name. Raises OSError."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self.whole.replace(self.final)
        _sync(self.final.parent)
        self.discard()
        return self.final

    def discard(self) -> None:
        """Remove what a pull has left. Raises OSError."""
        if self.partial.exists():
            shutil.rmtree(self.partial)
        if self.partial.parent.exists() and not any(self.partial.parent.iterdir()):
            self.partial.parent.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the pull, which ends with the process. Raises `PullFailed` if another
        process has it."""
        self.partial.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.partial / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise PullFailed("Another process pulls the same files now.") from None
        try:
            yield
        finally:
            os.close(handle)


def _short_digest(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _sync(folder: Path) -> None:
    """Let the name of a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
