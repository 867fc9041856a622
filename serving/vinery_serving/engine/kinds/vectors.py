"""Models of embeddings and rerank: one vector or score for each text, a batch of texts at once.
Every request that arrives ends with its last vectors or with a refusal, until the process ends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from vinery_serving.core import errors
from vinery_serving.core.events import TokenCounts
from vinery_serving.engine.config import EngineConfig, alone
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.kinds import EngineKind, key_of
from vinery_serving.engine.kinds.vector_batches import TokenArray, WaitingText, WaitingTexts
from vinery_serving.engine.kinds.vector_model import PROBE, PoolingModel, Vectors
from vinery_serving.engine.supervision import Liveness, PipelineBroken
from vinery_serving.transport import messages
from vinery_serving.transport.server import Connection, SocketServer

# What waits is bounded by its memory: a request may have thousands of short texts.
_TOKENS_OF_ANSWER: Final = 512
_QUEUE_IS_FULL: Final = "The engine's wait queue is full; try again shortly."


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
