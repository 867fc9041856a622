"""The files of a model: their state, which changes when a file is added, removed or written, and
whether the weights are whole, without loading.

A graph (`.xml`) names the offset of each constant in the weights file (`.bin`), and its size.
A copy that was cut is shorter than the end of the last constant.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import ParseError, iterparse

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
    try:
        found = entry.stat()
    except OSError:
        return 0, 0, 0
    return found.st_size, found.st_mtime_ns, found.st_ino


class UnusableWeights(Exception):
    """A weights file is missing or cut. The message names it, and what to do."""


def check_weights(folder: Path) -> None:
    """Raises UnusableWeights, or OSError for a file that cannot be read."""
    for graph in sorted(folder.glob("openvino_*.xml")):
        needed = _needed_bytes(graph)
        weights = graph.with_suffix(".bin")
        if needed and not weights.is_file():
            raise UnusableWeights(
                f"The weights file {weights.name} is missing in {folder}. Copy the folder again."
            )
        if needed and (size := weights.stat().st_size) < needed:
            raise UnusableWeights(
                f"The weights file {weights.name} is cut: it has {size:,} bytes, and the graph "
                f"needs {needed:,}. Copy the folder again."
            )


def _needed_bytes(graph: Path) -> int:
    """Return where the last constant ends; 0 without constants, and for a file that is no graph:
    loading reports such a file."""
    end, is_constant = 0, False
    try:
        for event, element in iterparse(graph, ("start", "end")):
            if event == "start" and element.tag == "layer":
                is_constant = element.get("type") == "Const"
            elif event == "end" and element.tag == "data" and is_constant:
                end = max(end, int(element.get("offset", 0)) + int(element.get("size", 0)))
            elif event == "end" and element.tag == "layer":
                element.clear()  # a large graph would take a hundred times its size
    except (ParseError, ValueError):
        return 0
    return end
