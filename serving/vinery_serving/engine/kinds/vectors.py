"""Models of embeddings and rerank: one vector or score for each text, with OpenVINO alone. Every
request that arrives ends with its last vectors or with a refusal, until the process ends.

A batch has texts of about the same length. Texts wait by size, the powers of two of their tokens.
After a batch of a larger size comes the smallest size that waits, and after a batch of the smallest
the size of the text that has waited longest. Within a size the keys take turns by tokens.
"""

from __future__ import annotations

import json
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import openvino as ov

from vinery_serving.core import errors
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import EngineConfig, alone
from vinery_serving.engine.fair_queue import FairQueue, Lane
from vinery_serving.engine.kinds import EngineKind, key_of
from vinery_serving.engine.supervision import Liveness, PipelineBroken
from vinery_serving.transport import messages
from vinery_serving.transport.server import Connection, SocketServer

TokenArray = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]

_BESIDE_TOKENS: Final = 16  # the memory of a waiting text beside its tokens, as a number of tokens
_IDS: Final = "input_ids"
_MASK: Final = "attention_mask"
_TYPES: Final = "token_type_ids"
_POSITIONS: Final = "position_ids"
_INPUTS: Final = frozenset({_IDS, _MASK, _TYPES, _POSITIONS})
# The names of a graph's outputs, the best first: vectors, states of tokens, scores.
_VECTORS: Final = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_SCORES: Final = ("logits",)
_WIDTH_STEP: Final = 8  # shapes that differ by a token would each be prepared anew by the plugin
# What waits is bounded by its memory: a request may have thousands of short texts.
_TOKENS_OF_ANSWER: Final = 512
_QUEUE_IS_FULL: Final = "The engine's wait queue is full; try again shortly."


@dataclass(eq=False, slots=True)
class WaitingText:
    """A text of a request. `owner` is the request, compared by identity."""

    owner: object
    index: int  # in its request
    lane: Lane
    token_ids: TokenArray  # (num_tokens,)
    second_start: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def size(self) -> int:
        return (self.num_tokens - 1).bit_length()

    @property
    def cost(self) -> int:
        """Its memory, as a number of tokens."""
        return self.num_tokens + _BESIDE_TOKENS


class WaitingTexts:
    def __init__(self, max_batch_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._sizes: dict[int, FairQueue[WaitingText]] = {}  # none is empty
        self._texts: OrderedDict[WaitingText, None] = OrderedDict()  # by arrival
        self._costs: Counter[Lane] = Counter()  # of the texts of each key
        self._last_size = 0

    def __len__(self) -> int:
        return len(self._texts)

    def cost(self, lane: Lane | None = None) -> int:
        """The memory of a key's texts, or of all texts, as a number of tokens."""
        return self._costs.total() if lane is None else self._costs[lane]

    def add(self, texts: Iterable[WaitingText]) -> None:
        for text in texts:
            queue = self._sizes.setdefault(text.size, FairQueue(lambda each: each.num_tokens))
            queue.add(text, text.lane)
            self._texts[text] = None
            self._costs[text.lane] += text.cost

    def drop(self, texts: Iterable[WaitingText]) -> None:
        """Remove those of the texts that still wait."""
        for text in texts:
            if text in self._texts:
                self._sizes[text.size].discard(text)
                self._forget(text)

    def next_batch(self) -> list[WaitingText]:
        """Remove and return the next texts: at least one, or as many as have `max_batch_tokens`
        with padding."""
        if not self._sizes:
            return []
        size = min(self._sizes)
        if size >= self._last_size:
            size = next(iter(self._texts)).size
        self._last_size = size
        queue, width = self._sizes[size], 0
        batch: list[WaitingText] = []
        while (text := queue.first_except(frozenset())) is not None:
            width = max(width, text.num_tokens)
            if batch and width * (len(batch) + 1) > self._max_batch_tokens:
                break
            queue.take(text)
            self._forget(text)
            batch.append(text)
        return batch

    def _forget(self, text: WaitingText) -> None:
        del self._texts[text]
        if not len(self._sizes[text.size]):
            del self._sizes[text.size]
        self._costs[text.lane] -= text.cost
        if not self._costs[text.lane]:
            del self._costs[text.lane]


# -- The graph: token ids to vectors or scores

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


# -- The engine


@dataclass(eq=False, slots=True)
class _Request:
    connection: Connection
    message: messages.PoolTexts
    arrived_at: float
    num_left: int  # texts without a vector
    queue_s: float | None = None
    texts: list[WaitingText] = field(default_factory=list)
    vectors: list[tuple[int, Vectors]] = field(default_factory=list)  # not sent yet

    @property
    def key(self) -> tuple[int, int]:
        return key_of(self.connection, self.message.id)

    @property
    def deadline_s(self) -> float:
        return self.message.deadline_s

    def reject(self, code: str | None, message: str) -> None:
        self.connection.send(messages.Rejected(self.message.id, code or "", message))


class VectorEngine(EngineKind[_Request]):
    REFUSAL = "This engine makes vectors of texts: it generates no text."

    def __init__(self, config: EngineConfig, model: PoolingModel, liveness: Liveness) -> None:
        super().__init__(config, liveness)
        self._model = model
        self._waiting = WaitingTexts(config.options.max_batch_tokens)
        self._num_batches = 0
        self._num_tokens = 0
        self.last_token_at = time.monotonic()

    @classmethod
    def load(cls, config: EngineConfig, liveness: Liveness) -> Self:
        with alone(config.cache_dir):
            return cls(config, PoolingModel(config), liveness)

    @property
    def wait_s(self) -> float:
        return 0 if len(self._waiting) else super().wait_s

    def receive(self, connection: Connection, message: messages.ToEngine) -> bool:
        if isinstance(message, messages.PoolTexts):
            self._submit(_Request(connection, message, time.monotonic(), len(message.texts)))
            return True
        return False

    def _submit(self, request: _Request) -> None:
        try:
            request.texts = self._read(request)
            if not request.message.goes_on:
                self._check_room(request.message.lane)
        except errors.ServingError as error:
            request.reject(error.code, error.message)
            return
        self.requests[request.key] = request
        self._waiting.add(request.texts)
        self.liveness.begin_request()

    def _read(self, request: _Request) -> list[WaitingText]:
        """Raises InvalidRequest for tokens that the model would take for others."""
        message = request.message
        if not message.texts or len(message.texts) != len(message.second_starts):
            raise errors.InvalidRequest("The request has no texts.")
        pairs = zip(message.texts, message.second_starts, strict=True)
        texts = [
            WaitingText(request, index, message.lane, _token_ids(ids), second_start)
            for index, (ids, second_start) in enumerate(pairs)
        ]
        most, vocab_size = self.config.max_context, self._model.vocab_size
        longest = max(text.num_tokens for text in texts)
        if most and longest > most:
            raise errors.InvalidRequest(f"A text has {longest} tokens; the model takes {most}.")
        for text in texts:
            low, high = int(text.token_ids.min()), int(text.token_ids.max())
            if low < 0 or (vocab_size and high >= vocab_size):
                wrong = low if low < 0 else high
                raise errors.InvalidRequest(f"{wrong} is no token of this model.")
        return texts

    def _check_room(self, lane: Lane) -> None:
        """Raises Overloaded."""
        options, waiting = self.config.options, self._waiting
        is_full = waiting.cost() >= options.max_waiting * _TOKENS_OF_ANSWER
        has_share = waiting.cost(lane) >= options.max_waiting_per_key * _TOKENS_OF_ANSWER
        # A request of more texts than may wait runs on an engine that is idle.
        if len(waiting) and (is_full or (lane != (0, 0) and has_share)):
            raise errors.Overloaded(_QUEUE_IS_FULL)

    def drop(self, request: _Request) -> None:
        if self.requests.pop(request.key, None) is not None:
            self._waiting.drop(request.texts)

    # Batches

    def step(self, server: SocketServer) -> bool:
        batch = self._waiting.next_batch()
        if not batch:
            return False
        num_tokens = max(text.num_tokens for text in batch) * len(batch)
        began_at = time.monotonic()
        vectors = self._computed(batch, num_tokens)
        self._num_batches += 1
        self._num_tokens += sum(text.num_tokens for text in batch)
        for text, vector in zip(batch, vectors, strict=True):
            self._keep(text, vector, began_at)
        self._send()
        return True

    def probe(self) -> None:
        self._computed([PROBE], 1)

    def _computed(self, batch: Sequence[WaitingText], num_tokens: int) -> Vectors:
        """Raises PipelineBroken."""
        self.liveness.begin_step(num_tokens)
        try:
            vectors = self._model.vectors(batch)
        except RuntimeError as error:
            raise PipelineBroken(f"a batch failed: {error}") from error
        self.liveness.end_step()
        self.last_token_at = time.monotonic()
        return vectors

    def _keep(self, text: WaitingText, vector: Vectors, began_at: float) -> None:
        request = text.owner
        assert isinstance(request, _Request)
        if request.queue_s is None:
            request.queue_s = began_at - request.arrived_at
        cut = self._model.cut(vector, request.message.dimensions)
        request.vectors.append((text.index, cut))
        request.num_left -= 1

    def _send(self) -> None:
        for request in [each for each in self.requests.values() if each.vectors]:
            indexes, vectors = zip(*request.vectors, strict=True)
            request.vectors = []
            is_last = request.num_left == 0
            if is_last:
                del self.requests[request.key]
                self.liveness.end_request()
            data = np.stack(vectors).astype("<f4").tobytes()
            id_, queue_s = request.message.id, request.queue_s or 0.0
            request.connection.send(messages.TextVectors(id_, indexes, data, is_last, queue_s))

    # Reports

    def greet(self) -> Mapping[str, Any]:
        return {"num_dimensions": self._model.num_dimensions}

    def stats(self) -> messages.EngineStats:
        last = self.last_token_at
        return messages.EngineStats(
            num_waiting=len(self._waiting),
            num_steps=self._num_batches,
            tokens=TokenCounts(self._num_tokens),
            last_token_age_s=None if last is None else time.monotonic() - last,
        )


def _token_ids(data: bytes) -> TokenArray:
    """Raises InvalidRequest for bytes that are no tokens."""
    if not data or len(data) % 4:
        raise errors.InvalidRequest("A text has no tokens.")
    return np.frombuffer(data, "<i4")


KIND: Final = VectorEngine
