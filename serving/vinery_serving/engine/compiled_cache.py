"""The folder in which OpenVINO keeps the compiled graphs of an engine.

OpenVINO names a compiled graph by what it compiles, but leaves out the numbers in LoRA adapters
(2026.4.1): two adapters of one form had one name, and one answered as the other. So the folder is
named by all files and options of the engine. Folders of earlier ones are removed, since each may
be as large as the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

import msgspec

# The path, size, modification time in ns and inode of each file.
FileStates = tuple[tuple[str, int, int, int], ...]


def file_states(paths: Iterable[Path]) -> FileStates:
    """Return the states of files, and of the files in folders. Raises OSError."""
    files = sorted(
        each for path in paths for each in (path.iterdir() if path.is_dir() else (path,))
    )
    stats = [(str(file), file.stat()) for file in files]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def compiled_folder(cache_dir: Path, files: Iterable[Path], options: object) -> Path:
    """Return the folder for what is compiled from these files and options, and remove those of
    others. Raises RuntimeError if the files cannot be found."""
    try:
        states = file_states(files)
    except OSError as error:
        raise RuntimeError(f"{error.filename} cannot be read: {error.strerror}.") from None
    source = msgspec.json.encode((states, options))
    folder = cache_dir / "compiled" / sha256(source).hexdigest()[:16]
    if folder.parent.is_dir():
        for other in set(folder.parent.iterdir()) - {folder}:
            rmtree(other) if other.is_dir() else other.unlink()
    return folder


@contextmanager
def alone(cache_dir: Path) -> Iterator[None]:
    """Let no other engine write to the folder meanwhile: engines of one model may start side by
    side. Raises OSError."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    with (cache_dir / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
