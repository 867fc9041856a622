"""The names of log files in the folder of a home: `web-1.log`, `engine-tiny-chat.log`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".log"
_ENGINE: Final = "engine-"
# Logs of models that are no longer served. More of them are deleted, the oldest first.
_MAX_FORMER: Final = 20


def log_path(folder: Path, process: str) -> Path:
    # Names of models may have slashes, and never a plus.
    return folder / f"{process.replace('/', '+')}{_SUFFIX}"


def engine_name(model: str) -> str:
    """Return the name of the engine process of a model, as in its log lines."""
    return f"{_ENGINE}{model}"


def process_of(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX).replace("+", "/")


def log_paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))


def engine_logs(folder: Path) -> set[Path]:
    return {path for path in log_paths(folder) if path.name.startswith(_ENGINE)}


def numbered(path: Path, number: int) -> Path:
    """Return the path of an older file; 0: the present one."""
    return path.with_name(f"{path.name}.{number}") if number else path


def older_files(path: Path) -> Iterator[Path]:
    """Return the older files of a process, the newest first. A killed process may have left a
    gap in their numbers. Raises OSError."""
    prefix = f"{path.name}."
    endings = (each.name.removeprefix(prefix) for each in path.parent.glob(f"{path.name}.*"))
    for number in sorted(int(ending) for ending in endings if ending.isdecimal()):
        yield numbered(path, number)


def delete_former_engines(folder: Path, models: Collection[str]) -> None:
    """Delete the oldest logs of engines of models that are not served, if there are many."""
    kept = {log_path(folder, engine_name(model)) for model in models}
    with contextlib.suppress(OSError):
        former = sorted(
            engine_logs(folder) - kept, key=lambda path: path.stat().st_mtime, reverse=True
        )
        for path in former[_MAX_FORMER:]:
            for each in (*older_files(path), path):
                each.unlink(missing_ok=True)
