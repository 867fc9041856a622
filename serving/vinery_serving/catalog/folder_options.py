"""Whether the model of a folder takes its options. What they need of it stands in its files."""

import re
from pathlib import Path
from typing import Final

from vinery_serving.catalog.heads import check_head, kind_of_head
from vinery_serving.engine.options import EngineOptions
from vinery_serving.prompting.folder import UnusableFolder, own_templates
from vinery_serving.prompting.template import ChatTemplate

_GRAPH: Final = "openvino_model.xml"
# A folder with this file holds a vision model, see `engine.graph`.
EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"
# The states of convolutions and recurrences, beside those of attention.
_LINEAR: Final = re.compile(rb'variable_id="[^"]*(?:ssm|conv|recurrent|linear)')
_CHUNK: Final = 1 << 20


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
        _check_draft("draft_model", Path(options.draft_model))
    if options.eagle3_head:
        _check_draft("eagle3_head", Path(options.eagle3_head))
        check_head(Path(options.eagle3_head), folder)
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
    names = ("draft_model", "eagle3_head", "prompt_lookup")
    for name in (*names, "adapters", "cache_eviction", "sparse_attention"):
        if getattr(options, name):
            raise ValueError(f"A vision model cannot have the option {name}. Leave it out.")


def _check_draft(option: str, folder: Path) -> None:
    """Raises ValueError for a folder whose model proposes tokens in another way."""
    if not folder.is_absolute():
        raise ValueError(f"{option} must be an absolute path, and {folder} is not.")
    if not (folder / _GRAPH).is_file():
        raise ValueError(f"The folder {folder} of {option} has no {_GRAPH}.")
    kind, is_head = kind_of_head(folder), option == "eagle3_head"
    if kind == "DFlash":
        raise ValueError(f"{folder} is a DFlash head, which Vinery does not run. Leave it out.")
    if kind == "EAGLE-3" and not is_head:
        raise ValueError(f"{folder} is an EAGLE-3 head: set the option eagle3_head to it.")
    if kind is None and is_head:
        raise ValueError(
            f"{folder} is no EAGLE-3 head: its graph and config.json do not mention one. Set the "
            "option draft_model if it is a model that reads tokens."
        )


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
