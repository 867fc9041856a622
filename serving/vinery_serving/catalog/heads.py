"""Heads for speculative decoding: models that read the hidden states of another one.

The exporter notes the kind of a head at the end of its graph, and the training in its config.json.
"""

import json
import os
from pathlib import Path
from typing import Final

_GRAPH: Final = "openvino_model.xml"
_NOTES_BYTES: Final = 1 << 16
_KINDS: Final = ((b"eagle3", "EAGLE-3"), (b"dflash", "DFlash"))
# From so many on GenAI 2026.4.1 chooses the layers that a head reads.
_LEAST_LAYERS: Final = 10


def kind_of_head(folder: Path) -> str | None:
    """Return `EAGLE-3` or `DFlash`; None for another model. Raises OSError."""
    config = folder / "config.json"
    text = _notes(folder) + (config.read_bytes().lower() if config.is_file() else b"")
    return next((kind for mark, kind in _KINDS if mark in text), None)


def check_no_head(folder: Path) -> None:
    """Raises ValueError for a head, which cannot be served as a model."""
    kind = kind_of_head(folder) if (folder / _GRAPH).is_file() else None
    if kind is None:
        return
    advice = (
        "set the option eagle3_head of its model to it" if kind == "EAGLE-3" else "serve another"
    )
    raise ValueError(f"{folder} is a head ({kind}), which answers nothing by itself: {advice}.")


def check_head(head: Path, folder: Path) -> None:
    """Raises ValueError for an EAGLE-3 head that GenAI 2026.4.1 cannot join to the model."""
    notes = _notes(head)
    if b"eagle3_mode" not in notes:
        raise ValueError(
            f"{head} has no note eagle3_mode in its graph, by which OpenVINO GenAI knows a head: "
            "export it again with optimum-intel 2.2 or newer."
        )
    num_layers = _num_layers(folder)
    if b"hidden_layers_list" not in notes and num_layers < _LEAST_LAYERS:
        raise ValueError(
            f"OpenVINO GenAI chooses the layers that a head reads only in models with "
            f"{_LEAST_LAYERS} layers or more, and config.json names {num_layers}. Such a head "
            "needs the note hidden_layers_list in its graph."
        )


def _notes(folder: Path) -> bytes:
    """Return the end of a graph, in small letters."""
    with (folder / _GRAPH).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _NOTES_BYTES))
        return file.read().lower()


def _num_layers(folder: Path) -> int:
    """Return the layers that config.json names; 0: none."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        text = config.get("text_config") or {}
        return int(config.get("num_hidden_layers") or text.get("num_hidden_layers") or 0)
    except (OSError, ValueError, TypeError, AttributeError):
        return 0
