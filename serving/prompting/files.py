"""Reads the files of a model's folder; whatever is broken in one is told with its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from serving.prompting.errors import UnusableFolder


def read_text(path: Path) -> str | None:
    """The text of a file; None when there is none. Raises `UnusableFolder` if unreadable."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFolder(f"{path} cannot be read: {error}.") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty when there is no file. Raises `UnusableFolder`."""
    text = read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UnusableFolder(f"{path} is broken JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UnusableFolder(f"{path} must hold a JSON object.")
    return value


def read_vino_notes(path: Path) -> Mapping[str, str]:
    """The notes (`rt_info`) that OpenVINO's exporter left in a model's XML; empty when
    there is no file. Raises `UnusableFolder` for broken XML.
    """
    if not path.is_file():
        return {}
    try:
        notes = ElementTree.parse(path).getroot().find("rt_info")
    except (OSError, ElementTree.ParseError) as error:
        raise UnusableFolder(f"{path} is broken XML: {error}.") from error
    if notes is None:
        return {}
    return {note.tag: note.attrib["value"] for note in notes if "value" in note.attrib}


def number(place: Mapping[str, Any], key: str) -> float | None:
    """A number; None when it is absent or null. Raises `UnusableFolder` for other types."""
    value = place.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableFolder(f"The model's {key} must be a number, not {value!r}.")
    return value


def token_ids(place: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One id or a list of ids; empty when absent or null. Raises `UnusableFolder`."""
    value = place.get(key)
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(id_, int) and id_ >= 0 for id_ in ids):
        raise UnusableFolder(f"The model's {key} must be token ids, not {value!r}.")
    return tuple(ids)
