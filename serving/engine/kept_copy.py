"""Keeps the copy of a model's folder, see `graph`, for the next start: to read and write a graph
takes a sixth of the time in which a small model wakes.

Beside the copy is a note of what it was made from. The note is removed before the copy is written
anew, so one that was begun and not finished has none.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from vinery_serving.engine import graph
from vinery_serving.engine.compiled_cache import FileStates, file_states
from vinery_serving.engine.graph import GraphFeatures


class _Note(msgspec.Struct, frozen=True):
    """What a copy was made from, and what it supports."""

    source: FileStates
    features: GraphFeatures


def kept(folder: Path, target: Path, write: Callable[[], GraphFeatures]) -> GraphFeatures:
    """Return what the copy `target` of a folder supports, which `write` makes if the folder or this
    code has changed. `write` makes none of a graph that supports nothing."""
    note_path, source = target.with_suffix(".json"), file_states((folder, Path(graph.__file__)))
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
