"""What the model in a folder does, read from its files without loading it.

The outputs of the graph decide, because a folder may keep the configuration of another export: the
same BERT is exported for embeddings, for ranking and for filling in words.
"""

import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from vinery_serving.core.tasks import Task
from vinery_serving.models.folder_options import EMBEDDINGS, check_no_head

_FAST_TOKENIZER: Final = "tokenizer.json"
_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
_GRAPH: Final = "openvino_model.xml"
_VECTORS: Final = frozenset({"sentence_embedding", "last_hidden_state", "token_embeddings"})
_SCORES: Final = "logits"
# What remembers a conversation generates text, whatever its outputs are called.
_STATE: Final = 'type="ReadValue"'
_MAX_LABELS: Final = 2


class UnusableModel(ValueError):
    """The model does what Vinery does not serve. The message is for administrators."""


def read_task(folder: Path) -> Task | None:
    """Return the task of the model in a folder; None: it has no graph that can be read. Raises
    UnusableModel."""
    if (folder / EMBEDDINGS).is_file():
        return Task.VISION
    try:
        graph = (folder / _GRAPH).read_text("utf-8", errors="replace")
    except OSError:
        return None
    if _STATE not in graph:
        outputs = _outputs(graph)
        if outputs.keys() & _VECTORS:
            return Task.EMBEDDINGS
        if outputs.get(_SCORES) == 2:
            _check_labels(folder)
            return Task.RERANK
    return Task.CHAT if _has_template(folder) else Task.COMPLETION


def _outputs(graph: str) -> dict[str, int]:
    """The number of dimensions of each output, by its names; empty for a broken graph."""
    try:
        root = ElementTree.fromstring(graph)
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
    labels = _read(folder / "config.json").get("id2label") or {}
    if len(labels) > _MAX_LABELS:
        raise UnusableModel(
            f"{folder} holds a classifier with {len(labels)} labels. A rerank model has one label, "
            "or two of which the second is relevance."
        )


def _has_template(folder: Path) -> bool:
    """As `prompting.folder` finds chat templates."""
    files = ("chat_template.jinja", "chat_template.json")
    if any((folder / name).is_file() for name in files):
        return True
    if _read(folder / "tokenizer_config.json").get("chat_template"):
        return True
    try:
        tokenizer = (folder / "openvino_tokenizer.xml").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return "<chat_template" in tokenizer


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


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
