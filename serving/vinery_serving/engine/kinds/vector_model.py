"""The graph of an embeddings or rerank model: token ids to vectors or scores, with OpenVINO
alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import openvino as ov

from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.kinds.vector_batches import WaitingText

Vectors = npt.NDArray[np.float32]

_IDS: Final = "input_ids"
_MASK: Final = "attention_mask"
_TYPES: Final = "token_type_ids"
_POSITIONS: Final = "position_ids"
_INPUTS: Final = frozenset({_IDS, _MASK, _TYPES, _POSITIONS})
# The names of a graph's outputs, the best first: vectors, states of tokens, scores.
_VECTORS: Final = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_SCORES: Final = ("logits",)
_WIDTH_STEP: Final = 8  # shapes that differ by a token would each be prepared anew by the plugin
PROBE: Final = WaitingText(None, 0, (0, 0), np.zeros(1, np.int32))  # one token


class PoolingModel:
    """Compiles the graph. Raises RuntimeError for an unsupported graph."""

    def __init__(self, config: EngineConfig) -> None:
        core = ov.Core()
        graph = core.read_model(config.folder / "openvino_model.xml")
        self._inputs = _input_names(graph)
        self._is_reranker = config.task is Task.RERANK
        self._output = _output_name(graph, _SCORES if self._is_reranker else _VECTORS)
        self._pooling = config.pooling
        compiled = core.compile_model(graph, config.device, _properties(config))
        self._request = compiled.create_infer_request()
        self.vocab_size = _vocab_size(config.folder)
        # Also the first step of all: it prepares the graph.
        self.num_dimensions = self.vectors([PROBE]).shape[1]

    def vectors(self, texts: Sequence[WaitingText]) -> Vectors:
        """Return one row for each text: (texts, num_dimensions). Raises RuntimeError."""
        inputs = padded(texts, self._pooling.pad_id)
        given = {name: inputs[name] for name in self._inputs}
        found: Vectors = np.array(self._request.infer(given)[self._output], np.float32)
        if self._is_reranker:
            return _scores(found)
        if found.ndim == 3:
            found = pooled(found, inputs[_MASK], self._pooling.pooling)
        return normalized(found) if self._pooling.normalizes else found

    def cut(self, vector: Vectors, num_dimensions: int) -> Vectors:
        """Return the first numbers of a vector, at length 1 if the whole vector has it."""
        if num_dimensions in (0, len(vector)):
            return vector
        first = vector[:num_dimensions]
        return normalized(first[None])[0] if self._pooling.normalizes else first


def padded(texts: Sequence[WaitingText], pad_id: int) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return the inputs of a graph for these texts: (texts, width), padding after each text."""
    longest = max(text.num_tokens for text in texts)
    width = longest if longest < _WIDTH_STEP else -(-longest // _WIDTH_STEP) * _WIDTH_STEP
    shape = len(texts), width
    ids, mask = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
    types = np.zeros(shape, np.int64)
    for row, text in enumerate(texts):
        ids[row, : text.num_tokens] = text.token_ids
        mask[row, : text.num_tokens] = 1
        if text.second_start:
            types[row, text.second_start : text.num_tokens] = 1
    positions = np.tile(np.arange(width, dtype=np.int64), (len(texts), 1))
    return {_IDS: ids, _MASK: mask, _TYPES: types, _POSITIONS: positions}


def pooled(states: Vectors, mask: npt.NDArray[np.int64], pooling: str) -> Vectors:
    """Return one vector for each text from the states of its tokens: (texts, width, dimensions)."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last_token":
        last: Vectors = states[np.arange(len(states)), mask.sum(axis=1) - 1]
        return last
    weights = mask[:, :, None].astype(np.float32)
    mean: Vectors = (states * weights).sum(axis=1) / weights.sum(axis=1)
    return mean


def normalized(vectors: Vectors) -> Vectors:
    """Return the vectors at length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return scaled


def _scores(logits: Vectors) -> Vectors:
    """Return how relevant each document is, 0 to 1: (texts, 1). With two labels the second one is
    relevance."""
    relevance = logits[:, 1:] - logits[:, :1] if logits.shape[1] == 2 else logits
    scores: Vectors = (1 / (1 + np.exp(-relevance.astype(np.float64)))).astype(np.float32)
    return scores


def _properties(config: EngineConfig) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "CACHE_DIR": str(config.compiled_dir),
    }
    if num_threads := config.options.num_threads:
        # Pinned threads of several engines would share the first cores.
        properties |= {"INFERENCE_NUM_THREADS": num_threads, "ENABLE_CPU_PINNING": False}
    return properties | config.options.plugin


def _input_names(graph: ov.Model) -> Sequence[str]:
    names = [next(iter(each.get_names() & _INPUTS), None) for each in graph.inputs]
    if _IDS not in names or None in names:
        found = ", ".join(sorted(each.get_any_name() for each in graph.inputs))
        raise RuntimeError(
            f"The graph has the inputs {found}; Vinery gives {', '.join(sorted(_INPUTS))}. Export "
            "the model with the task feature-extraction or text-classification."
        )
    return [name for name in names if name is not None]


def _output_name(graph: ov.Model, wanted: Sequence[str]) -> str:
    names = {name for each in graph.outputs for name in each.get_names()}
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise RuntimeError(
            f"The graph has none of the outputs {', '.join(wanted)}, but "
            f"{', '.join(sorted(names))}. Export the model for its task again."
        )
    return found


def _vocab_size(folder: Path) -> int:
    """As config.json has it; 0: unknown."""
    try:
        size = json.loads((folder / "config.json").read_text("utf-8")).get("vocab_size")
    except (OSError, ValueError):
        return 0
    return size if isinstance(size, int) else 0
