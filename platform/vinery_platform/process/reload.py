"""Detection of changed source files, for `vinery up --reload`: a scan takes a few milliseconds."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

_SUFFIXES = frozenset({".css", ".html", ".js", ".lua", ".py", ".svg", ".txt"})
_POLL_S = 0.5


async def changed_files(folders: Sequence[Path]) -> AsyncIterator[Collection[Path]]:
    """Yield the source files that were added, changed or removed since the last yield."""
    known = await asyncio.to_thread(modification_times, folders)
    while True:
        await asyncio.sleep(_POLL_S)
        found = await asyncio.to_thread(modification_times, folders)
        if changed := {path for path, _ in known.items() ^ found.items()}:
            known = found
            yield changed


def modification_times(folders: Sequence[Path]) -> dict[Path, int]:
    """The modification time of each source file below the folders, in nanoseconds."""
    times = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in _SUFFIXES:
                try:
                    times[path] = path.stat().st_mtime_ns
                except FileNotFoundError:  # removed since the folder was listed
                    continue
    return times
