"""Pulls a model from a hub into a folder, which gets the final name when complete.

    models/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/             complete, under the final name
    models/.partial/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/    a pull that has not ended
        whole/          files that are complete and checked, by their names
        unfinished/     the beginnings of other files
        lock            held by the process that pulls

The second name is the commit, so that a new version does not touch served files; for a part of a
repository, a digest of the patterns follows. A pull may end at any moment, also by kill -9: the
next pull fetches only the missing bytes, of the same commit.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from vinery_serving.models.hub import gguf
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.formats import GRAPHS
from vinery_serving.models.hub.machine import free_bytes
from vinery_serving.models.hub.repository import Repository, RepositoryFile
from vinery_serving.models.hub.transfer import Progress, Report, Stream, fetch
from vinery_serving.models.hub.verdict import DISK_MARGIN_BYTES, gigabytes


@dataclass(frozen=True, slots=True)
class PullFolders:
    """The folders of one pull. `root` is the folder of all models."""

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
        """Return the folders of an origin without a commit, such as a URL; `hint` names them."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", hint).strip(".-")[:80] or "model"
        return cls(root, name, _short_digest(text))

    @property
    def final(self) -> Path:
        return self.root / self.name / self.version

    @property
    def partial(self) -> Path:
        return self.root / ".partial" / self.name / self.version

    @property
    def whole(self) -> Path:
        return self.partial / "whole"

    def unfinished(self, path: str) -> Path:
        return self.partial / "unfinished" / _short_digest(path, 32)

    def create(self) -> None:
        self.whole.mkdir(parents=True, exist_ok=True)
        (self.partial / "unfinished").mkdir(exist_ok=True)

    def empty_whole(self) -> None:
        """Remove the files of an attempt that cannot be continued. Raises OSError."""
        shutil.rmtree(self.whole)
        self.whole.mkdir()

    def finish(self) -> Path:
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self.whole.replace(self.final)
        # Let the name survive a loss of power.
        handle = os.open(self.final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        self.discard()
        return self.final

    def discard(self) -> None:
        if self.partial.exists():
            shutil.rmtree(self.partial)
        if self.partial.parent.exists() and not any(self.partial.parent.iterdir()):
            self.partial.parent.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the pull's lock, which ends with the process. Raises `PullFailed` if it is taken."""
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


def pull(
    hub: Hub,
    repository: Repository,
    models_dir: Path,
    report: Report,
    *,
    patterns: Sequence[str] = (),
) -> Path:
    """Fetch the files, which `patterns` have chosen. Returns the folder. Raises `PullFailed`."""
    folders = PullFolders.of_repository(models_dir, repository, patterns)
    fill = partial(fetch_all, partial(hub.open, repository), repository, folders, report)
    return complete(folders, fill, report)


def complete(folders: PullFolders, fill: Callable[[], None], report: Report) -> Path:
    """Let `fill` put the files into the folder of a pull, unless it is complete. GGUF files are
    converted. Returns the folder that can be served. Raises `PullFailed`."""
    try:
        if not folders.final.is_dir():
            with folders.locked():
                folders.create()
                fill()
                for file in sorted(folders.whole.rglob("*.gguf")):
                    report(f"converting {file.name}", 0, None)
                    gguf.convert(file)
                folders.finish()
        return _served_folder(folders.final)
    except OSError as error:
        raise PullFailed(
            f"The files cannot be stored in {folders.root}: {error.strerror}."
        ) from None


def _served_folder(final: Path) -> Path:
    """Return the folder with the model, which may lie within an archive's, and remove converted
    GGUF files."""
    for file in sorted(final.rglob("*.gguf")):
        file.unlink()
    for name in (*GRAPHS, "config.json"):
        found = sorted(final.rglob(name), key=lambda path: len(path.parts))
        if found:
            return found[0].parent
    return final


def fetch_all(
    open_: Callable[[RepositoryFile, int, float], AbstractContextManager[Stream]],
    repository: Repository,
    folders: PullFolders,
    report: Report,
    verb: str = "fetching",
) -> None:
    """`open_` begins to read a file of the repository, see `transfer.Open`."""
    missing = [each for each in repository.files if not (folders.whole / each.path).is_file()]
    begun = [folders.unfinished(each.path) for each in missing]
    started = sum(each.stat().st_size for each in begun if each.is_file())
    missing_bytes = sum(each.size_bytes for each in missing)
    check_disk(missing_bytes - started, folders.root)
    done = repository.size_bytes - missing_bytes + started
    progress = Progress(report, repository.size_bytes, done)
    for file in missing:
        progress.enter(f"{verb} {file.path}")
        unfinished = folders.unfinished(file.path)
        fetch(partial(open_, file), file, unfinished, progress.advance)
        whole = folders.whole / file.path
        whole.parent.mkdir(parents=True, exist_ok=True)
        unfinished.replace(whole)


def check_disk(num_bytes: int, folder: Path) -> None:
    """Raises `PullFailed` if the disk has no room for so many bytes more."""
    free = free_bytes(folder)
    if num_bytes + DISK_MARGIN_BYTES > free:
        raise PullFailed(
            f"The missing files take {gigabytes(num_bytes)}, and the disk of {folder} has "
            f"{gigabytes(free)} free. Free some, or move the home folder."
        )
