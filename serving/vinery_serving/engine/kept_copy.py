"""Keeps the copy of a model's folder, see `graph`, for the next start: to read and write a graph
takes a sixth of the time in which a small model wakes.

Beside the copy is a note of what it was made from. The note is removed before the copy is written
anew, so one that was begun and not finished has none.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import openvino

from vinery_serving.engine import graph
from vinery_serving.engine.compiled_cache import FileStates, file_states
from vinery_serving.engine.graph import GraphFeatures

# What a copy depends on beside its folder: it is tried on a device.
_CODE: Final = tuple(Path(each.__file__ or "") for each in (graph, openvino))


class _Note(msgspec.Struct, frozen=True):
    """What a copy was made from, and what it supports."""

    source: FileStates
    features: GraphFeatures


def kept(folder: Path, target: Path, write: Callable[[], GraphFeatures]) -> GraphFeatures:
    """Return what the copy `target` of a folder supports, which `write` makes if the folder or this
    code has changed. `write` makes none of a graph that supports nothing."""
    note_path, source = target.with_name(f"{target.name}.json"), file_states((folder, *_CODE))
    with suppress(OSError, msgspec.MsgspecError):
        note = msgspec.json.decode(note_path.read_bytes(), type=_Note)
        if note.source == source:
            return note.features
    note_path.unlink(missing_ok=True)
    features = write()
    if target.is_dir():
        draft = note_path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(_Note(source, features)))
        draft.rename(note_path)
    return features
