"""Reads the task of a model from the files of the folder, and checks options against these files.

The outputs of the graph decide on the task, because a folder may keep the configuration of another
export: the same BERT is exported for embeddings, for ranking and for filling in words.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from django.conf import settings

from vinery_serving.core.tasks import Task
from vinery_serving.engine.options import EngineOptions
from vinery_serving.prompting.folder import UnusableFolder, own_templates, read_object
from vinery_serving.prompting.template import NO_WORDS, ChatTemplate

_GRAPH: Final = "openvino_model.xml"
# A folder with this file holds a vision model, see `engine.graph`.
EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"
# The states of convolutions and recurrences, beside those of attention.
_LINEAR: Final = re.compile(rb'variable_id="[^"]*(?:ssm|conv|recurrent|linear)')
_CHUNK: Final = 1 << 20
_MAX_GRAPH_BYTES: Final = 16 << 20


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
    graph, is_set = folder / _GRAPH, options.cache_interval_multiplier
    if is_set and not (graph.is_file() and _mentions(graph, _LINEAR)):
        raise ValueError(
            "cache_interval_multiplier is for models with linear attention, and this one has none. "
            "Leave it out."
        )


def _check_template(source: str) -> None:
    try:
        templates = own_templates(source)
        if templates is not None:
            ChatTemplate(templates.default, words=NO_WORDS)
    except UnusableFolder as error:
        raise ValueError(str(error)) from error


def _check_vision(options: EngineOptions) -> None:
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


def _mentions(graph: Path, pattern: re.Pattern[bytes]) -> bool:
    """Raises OSError."""
    with graph.open("rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK):
            if pattern.search(rest + chunk):
                return True
            rest = chunk[-256:]
    return False


# -- Heads for speculative decoding: models that read the hidden states of another model. The
# exporter notes the kind of a head at the end of the graph; the training notes it in config.json.

_NOTES_BYTES: Final = 1 << 16
_KINDS: Final = ((b"eagle3", "EAGLE-3"), (b"dflash", "DFlash"))
# With so many layers or more, GenAI 2026.4.1 chooses those that a head reads.
_LEAST_LAYERS: Final = 10


def kind_of_head(folder: Path) -> str | None:
    """Return `EAGLE-3` or `DFlash`; None for another model. Raises OSError."""
    text = _notes(folder)
    if (config := folder / "config.json").is_file():
        with config.open("rb") as file:
            text += file.read(_CHUNK).lower()
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
    with (folder / _GRAPH).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _NOTES_BYTES))
        return file.read().lower()


def _num_layers(folder: Path) -> int:
    """Return the layers that config.json names; 0: none."""
    try:
        config = _json_object(folder / "config.json")
        text = config.get("text_config") or {}
        return int(config.get("num_hidden_layers") or text.get("num_hidden_layers") or 0)
    except (ValueError, TypeError, AttributeError):
        return 0


# -- Models that ship with Vinery: a name stands for the folder, in a clone and in a wheel


def shipped_models() -> tuple[str, ...]:
    files = Path(settings.VINERY_MODELS_DIR).glob("*/config.json")
    return tuple(sorted(each.parent.name for each in files))


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a model that ships with Vinery; None for any other name."""
    return Path(settings.VINERY_MODELS_DIR) / name if name in shipped_models() else None


# -- The task of a model

_FAST_TOKENIZER: Final = "tokenizer.json"
_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
_VECTORS: Final = frozenset({"sentence_embedding", "last_hidden_state", "token_embeddings"})
_SCORES: Final = "logits"
# A graph that keeps a state generates text, whatever the names of the outputs.
_STATE: Final = re.compile(b'type="ReadValue"')
_TEMPLATE: Final = re.compile(b"<chat_template")
_MAX_LABELS: Final = 2


class UnusableModel(ValueError):
    """The model has a task that Vinery does not serve. The message is for administrators."""


def read_task(folder: Path) -> Task | None:
    """Return the task of the model in a folder; None: no readable graph. Raises UnusableModel."""
    if (folder / EMBEDDINGS).is_file():
        return Task.VISION
    try:
        has_state = _mentions(folder / _GRAPH, _STATE)
    except OSError:
        return None
    if not has_state:
        outputs = _outputs(folder / _GRAPH)
        if outputs.keys() & _VECTORS:
            return Task.EMBEDDINGS
        if outputs.get(_SCORES) == 2:
            _check_labels(folder)
            return Task.RERANK
    return Task.CHAT if _has_template(folder) else Task.COMPLETION


def _outputs(graph: Path) -> dict[str, int]:
    """The number of dimensions of each output, by its names; empty for a broken graph. Raises
    UnusableModel for a graph that is larger than those of models without states."""
    if graph.stat().st_size > _MAX_GRAPH_BYTES:
        raise UnusableModel(f"{graph} has no states and more than {_MAX_GRAPH_BYTES >> 20} MB.")
    parser = ElementTree.XMLParser()
    try:
        with graph.open("rb") as file:
            while chunk := file.read(_CHUNK):  # others may run between two parts
                parser.feed(chunk)
        root = parser.close()
    except ElementTree.ParseError:
        return {}
    layers = {each.get("id", ""): each for each in root.iterfind("layers/layer")}
    results = {id_ for id_, layer in layers.items() if layer.get("type") == "Result"}
    sources = [
        (layers.get(edge.get("from-layer", "")), edge.get("from-port"))
        for edge in root.iterfind("edges/edge")
        if edge.get("to-layer") in results
    ]
    ports = [
        port
        for layer, number in sources
        if layer is not None
        for port in layer.iterfind("output/port")
        if port.get("id") == number
    ]
    return {
        name: len(port.findall("dim"))
        for port in ports
        for name in port.get("names", "").split(",")
    }


def _check_labels(folder: Path) -> None:
    """Raises UnusableModel for a classifier that gives no relevance."""
    labels = _json_object(folder / "config.json").get("id2label") or {}
    if len(labels) > _MAX_LABELS:
        raise UnusableModel(
            f"{folder} holds a classifier with {len(labels)} labels. A rerank model has one label, "
            "or two of which the second is relevance."
        )


def _has_template(folder: Path) -> bool:
    """Looks where `prompting.folder` finds chat templates."""
    files = ("chat_template.jinja", "chat_template.json")
    if any((folder / name).is_file() for name in files):
        return True
    if _json_object(folder / "tokenizer_config.json").get("chat_template"):
        return True
    with suppress(OSError):
        return _mentions(folder / "openvino_tokenizer.xml", _TEMPLATE)
    return False


def _json_object(path: Path) -> Mapping[str, Any]:
    with suppress(UnusableFolder):
        return read_object(path)
    return {}


def check_folder(text: str) -> None:
    """Raises ValueError for a folder that has no OpenVINO model that Vinery can serve."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{path} is not an absolute path.")
    if not path.is_dir():
        raise ValueError(f"There is no folder {path}.")
    graph = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if graph is None:
        raise ValueError(
            f"{path} has no openvino_model.xml. Export the model first, for example with "
            "`optimum-cli export openvino`."
        )
    weights = graph.with_suffix(".bin")
    if not weights.is_file():
        raise ValueError(f"{path} has no {weights.name}, the weights. Copy the folder again.")
    check_no_head(path)
    task = read_task(path)
    if task is Task.RERANK and not (path / _FAST_TOKENIZER).is_file():
        raise ValueError(
            f"{path} has no {_FAST_TOKENIZER}, with which Vinery writes queries and documents as "
            "pairs. Copy it from the original model."
        )
