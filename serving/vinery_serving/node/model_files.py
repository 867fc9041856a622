"""The files of a model: their state, which changes when a file is added, removed or written, and
whether the weights are whole, without loading.

A graph (`.xml`) names the offset of each constant in the weights file (`.bin`), and its size.
A copy that was cut is shorter than the end of the last constant.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.parsers.expat import ExpatError, ParserCreate

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

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal end, is_constant
        if name == "layer":
            is_constant = attributes.get("type") == "Const"
        elif name == "data" and is_constant:
            end = max(end, int(attributes.get("offset", 0)) + int(attributes.get("size", 0)))

    parser = ParserCreate()  # keeps nothing of the graph
    parser.StartElementHandler = begin
    try:
        with graph.open("rb") as file:
            parser.ParseFile(file)
    except (ExpatError, ValueError):
        return 0
    return end
