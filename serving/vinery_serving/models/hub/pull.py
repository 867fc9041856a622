"""Pulls a model from a hub into a folder, which gets the final name when complete.

    models/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/             complete, under the final name
    models/.partial/OpenVINO--Qwen3-8B-int4-ov/3f2a9c1b7d10/    a pull that has not ended
        whole/          files that are complete and checked, by their names
        unfinished/     the beginnings of other files
        lock            held by the process that pulls

The second name is the commit, so that a new version does not touch served files; for a part of a
repository, a digest of the patterns follows. A pull may end at any moment, also by kill -9: the
next pull fetches only the missing bytes, of the same commit. The downloads of `huggingface_hub` 2
begin again after a kill, so only its client is used. The digest finds wrong content, whatever an
earlier attempt has left.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from vinery_serving.models.hub import gguf
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.machine import free_bytes
from vinery_serving.models.hub.repository import GRAPHS, Repository, RepositoryFile
from vinery_serving.models.hub.verdict import DISK_MARGIN_BYTES, gigabytes
from vinery_serving.models.jobs import locked

_BLOCK_BYTES: Final = 1 << 20
# A connection that is silent for so many seconds is ended.
_STALL_S: Final = 30.0
# Attempts in a row that bring no byte, and attempts in all.
_MAX_ATTEMPTS: Final = 6
_MAX_ATTEMPTS_IN_ALL: Final = 60
# The wait is doubled after each attempt that brings no byte; a hub may ask for a longer one.
_FIRST_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 30.0
_MAX_ASKED_WAIT_S: Final = 300.0


Report = Callable[[str, int, int | None], None]
"""Takes a stage, the bytes that are done, and the bytes in all; None: unknown."""


class Progress:
    """Counts bytes, and reports them with each new stage and whenever some have come."""

    def __init__(self, report: Report, total_bytes: int, done_bytes: int = 0) -> None:
        self._report, self._stage = report, ""
        self._total, self._done = total_bytes, done_bytes

    def enter(self, stage: str) -> None:
        self._stage = stage
        self.advance(0)

    def advance(self, num_bytes: int) -> None:
        """Count fetched bytes; less than 0: dropped bytes."""
        self._done += num_bytes
        self._report(self._stage, self._done, self._total)


class WrongContent(PullFailed):
    """The bytes do not have the listed size or digest."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of a file from `start` on, which is 0 where a server cannot begin later."""

    start: int
    parts: Iterator[bytes]


Open = Callable[[int, float], AbstractContextManager[Stream]]
"""Begins to read a file at a byte; a connection that is silent for so many seconds is ended. Raises
`PullFailed`, `HubUnavailable` for what may pass, and `WrongContent` if the file ends before."""


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

    def locked(self) -> AbstractContextManager[None]:
        """Hold the pull's lock. Raises `PullFailed` if it is taken."""
        busy = PullFailed("Another process pulls the same files now.")
        return locked(self.partial / "lock", busy)


def _short_digest(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


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
    """`open_` begins to read a file of the repository, see `Open`."""
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


# -- One file, after an earlier attempt


def fetch(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    """Fetch a file to `path`, where an earlier attempt may have left its beginning. `advance` gets
    the bytes that came; less than 0 if some are dropped. Raises `PullFailed`, with the file's name
    if its content is wrong twice."""
    try:
        _attempt(open_, file, path, advance)
    except WrongContent:
        advance(-_size(path))
        path.unlink(missing_ok=True)
        _attempt(open_, file, path, advance)


def _attempt(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    attempts, in_row = 0, 0
    while (before := _size(path)) != file.size_bytes or not path.exists():
        try:
            _append(open_, file, path, advance)
        except HubUnavailable as error:
            attempts += 1
            in_row = 0 if _size(path) > before else in_row + 1
            if in_row >= _MAX_ATTEMPTS or attempts >= _MAX_ATTEMPTS_IN_ALL:
                raise
            wait_s = min(_FIRST_WAIT_S * 2**in_row, _MAX_WAIT_S)
            time.sleep(max(wait_s, min(error.retry_after_s, _MAX_ASKED_WAIT_S)))
    _check_content(file, path)


def _append(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    path.touch()
    with open_(_size(path), _STALL_S) as stream, path.open("r+b") as target:
        position = stream.start
        advance(position - _size(path))
        target.truncate(position)
        target.seek(position)
        for part in stream.parts:
            position += len(part)
            if position > file.size_bytes:
                raise WrongContent(f"{file.path} is longer than listed.")
            target.write(part)
            advance(len(part))
        if position < file.size_bytes:
            raise WrongContent(f"{file.path} is shorter than listed.")


def _check_content(file: RepositoryFile, path: Path) -> None:
    """Raises `WrongContent` if a file has another digest than the hub lists."""
    if not (listed := file.sha256 or file.git_sha1):
        return
    head = b"blob %d\0" % file.size_bytes
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(head, usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
        os.fsync(content.fileno())
    if digest.hexdigest() != listed:
        raise WrongContent(
            f"{file.path} has another content than is listed: its digest differs. Try again "
            "later, or name another revision."
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
