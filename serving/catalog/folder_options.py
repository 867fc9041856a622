"""Whether the model of a folder takes its options. What they need of it stands in its files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vinery_serving.engine.options import EngineOptions
from vinery_serving.prompting.folder import UnusableFolder, own_templates
from vinery_serving.prompting.template import ChatTemplate

_GRAPH: Final = "openvino_model.xml"
# A folder with this file holds a vision model, see `engine.graph`.
EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"
# The states of convolutions and recurrences, beside those of attention.
_LINEAR: Final = re.compile(rb'variable_id="[^"]*(?:ssm|conv|recurrent|linear)')
_CHUNK: Final = 1 << 20
_NOTES_BYTES: Final = 1 << 16


def check_folder_options(options: EngineOptions, folder: Path) -> None:
    """Raise ValueError with a sentence for an option that the model does not take. A folder that is
    gone is not checked: its model may be renamed."""
    if not folder.is_dir():
        return
    if (folder / EMBEDDINGS).is_file():
        _check_vision(options)
    if options.chat_template:
        _check_template(options.chat_template)
    for adapter in options.adapters:
        if not Path(adapter.path).exists():
            raise ValueError(f"There is no adapter {adapter.path}.")
    if options.draft_model:
        _check_draft(Path(options.draft_model))
    if options.cache_interval_multiplier and not _has_linear_attention(folder / _GRAPH):
        raise ValueError(
            "cache_interval_multiplier is for models with linear attention, and this one has none. "
            "Leave it out."
        )


def _check_template(source: str) -> None:
    """Raises ValueError for a template that does not compile, and a path without a file."""
    try:
        templates = own_templates(source)
        if templates is not None:
            ChatTemplate(templates.default)
    except UnusableFolder as error:
        raise ValueError(str(error)) from error


def _check_vision(options: EngineOptions) -> None:
    """Raises ValueError for options that GenAI has for text models only."""
    for name in ("draft_model", "prompt_lookup", "adapters", "cache_eviction", "sparse_attention"):
        if getattr(options, name):
            raise ValueError(f"A vision model cannot have the option {name}. Leave it out.")


def _check_draft(folder: Path) -> None:
    """Raises ValueError for a folder without a model."""
    if not folder.is_absolute():
        raise ValueError(f"draft_model must be an absolute path, and {folder} is not.")
    if not (folder / _GRAPH).is_file():
        raise ValueError(f"The draft model's folder {folder} has no {_GRAPH}.")
    for name in _heads(folder):
        raise ValueError(
            f"{folder} is {name} head, which reads hidden states of its model. Vinery runs draft "
            "models that read tokens: choose a smaller model with the same tokenizer."
        )


def _heads(folder: Path) -> Iterator[str]:
    """Yield the kind of a head, with its article; nothing for another model. The exporter notes
    it at the end of the graph, and the training in config.json."""
    with (folder / _GRAPH).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _NOTES_BYTES))
        text = file.read().lower()
    config = folder / "config.json"
    text += config.read_bytes().lower() if config.is_file() else b""
    for mark, name in ((b"eagle3", "an EAGLE-3"), (b"dflash", "a DFlash")):
        if mark in text:
            yield name


def _has_linear_attention(graph: Path) -> bool:
    try:
        with graph.open("rb") as file:
            rest = b""
            while chunk := file.read(_CHUNK):
                if _LINEAR.search(rest + chunk):
                    return True
                rest = chunk[-256:]
    except OSError:
        return False
    return False
