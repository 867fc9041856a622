"""The state of a model's files: it changes when a file is added, removed or written."""

import os
from collections.abc import Iterable
from pathlib import Path

FolderState = tuple[tuple[str, int, int, int], ...]
"""The path, size, modification time and inode of each file."""


def folder_state(folders: Iterable[Path]) -> FolderState:
    """Return the state of all files directly in these folders. A folder that cannot be read has
    none."""
    return tuple(sorted(each for folder in folders for each in _files(folder)))


def _files(folder: Path) -> list[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as entries:
            return [(each.path, *_stamps(each)) for each in entries]
    except OSError:
        return []


def _stamps(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    """Return those of the file to which a link leads; zeros if it leads nowhere."""
    try:
        found = entry.stat()
    except OSError:
        return 0, 0, 0
    return found.st_size, found.st_mtime_ns, found.st_ino
