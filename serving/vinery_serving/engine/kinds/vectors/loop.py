"""The only thread of a pooling engine: read the socket, compute a batch, send its vectors.

What arrives while a batch is computed is in the next ones. Every request that arrives ends with its
last vectors or with a refusal, until the process ends. A batch that takes too long breaks the
promise of a heartbeat, and the node kills the process.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

import numpy as np

from vinery_serving.core import errors
from vinery_serving.core.events import TokenCounts
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.estimates import LEAST_S, StepLimits
from vinery_serving.engine.kinds.vectors.batches import Lane, TokenArray, WaitingText, WaitingTexts
from vinery_serving.engine.kinds.vectors.model import PoolingModel, Vectors
from vinery_serving.engine.process import PipelineBroken, Supervision
from vinery_serving.engine.use import DRAIN_WAIT_S, Use
from vinery_serving.transport.messages import (
    PROTOCOL_VERSION,
    Cancel,
    EngineStats,
    Grant,
    Hello,
    Keep,
    Leaving,
    MediaPixels,
    Ping,
    Pong,
    PoolTexts,
    Rejected,
    Submit,
    TestPictures,
    TextVectors,
)
from vinery_serving.transport.server import Connection, Incoming, SocketServer

logger = logging.getLogger(__name__)

# An idle engine computes a token this often, to know that it still can.
PROBE_INTERVAL_S: Final = 10.0
# How long an idle engine waits for messages before it looks at its lifeline and its log.
_IDLE_WAIT_S: Final = 1.0
_CHECK_INTERVAL_S: Final = 0.2
_QUEUE_IS_FULL: Final = "The engine's wait queue is full; try again shortly."
_NO_TEXT: Final = "This engine makes vectors of texts: it generates no text."


@dataclass(eq=False, slots=True)
class _Request:
    connection: Connection
    message: PoolTexts
    arrived_at: float
    num_left: int  # texts without a vector
    queue_s: float | None = None
    vectors: list[tuple[int, Vectors]] = field(default_factory=list)  # not sent yet

    @property
    def key(self) -> tuple[int, int]:
        return id(self.connection), self.message.id


class PoolingLoop:
    """Owns the model, the wait queue and the socket."""

    def __init__(self, config: EngineConfig, model: PoolingModel, supervision: Supervision) -> None:
        self._config = config
        self._model = model
        self._heartbeat = supervision.heartbeat
        self._lifeline = supervision.lifeline
        self._log_file = supervision.log_file
        self._limits = StepLimits(config.options.step_timeout_s)
        self._waiting = WaitingTexts(config.options.max_batch_tokens)
        self._requests: dict[tuple[int, int], _Request] = {}
        self._num_batches = 0
        self._num_tokens = 0
        self._computed_at = time.monotonic()
        self._next_check_at = 0.0
        self._is_listening = False  # until then the load has its own limit
        self._is_stopping = False
        self._use = Use(supervision.heartbeat)

    def run(self, on_listening: Callable[[SocketServer], None]) -> None:
        """Serve until `stop`, or until no node is left. Raises PipelineBroken."""
        server = SocketServer(self._config.socket_path, self._hello)
        on_listening(server)
        self._is_listening = True
        try:
            while not (self._is_stopping or self._lifeline.has_ended):
                self._iterate(server)
            server.broadcast(Leaving())
        finally:
            server.close()

    def stop(self) -> None:
        """Leave `run` soon. Safe to call from a signal handler."""
        self._is_stopping = True

    def drain(self) -> None:
        """Finish what there is, let gateways send no more, and leave `run`. Safe to call from a
        signal handler."""
        self._use.must_drain = True

    def report(self) -> Mapping[str, Any]:
        return {}

    def _iterate(self, server: SocketServer) -> None:
        self._promise(LEAST_S)
        idle_wait_s = DRAIN_WAIT_S if self._use.must_drain else _IDLE_WAIT_S
        received = server.poll(0 if len(self._waiting) else idle_wait_s)
        for incoming in received:
            self._receive(incoming)
        if self._use.must_drain and self._use.has_drained(
            server, is_busy=bool(self._requests or received)
        ):
            self._is_stopping = True
        self._check()
        if batch := self._waiting.next_batch():
            self._compute(batch)
        elif time.monotonic() - self._computed_at > PROBE_INTERVAL_S:
            self._probe()
        self._use.report(is_busy=bool(self._requests))

    def _promise(self, limit_s: float) -> None:
        """Promise the node a sign of life within this time."""
        if self._heartbeat is not None and self._is_listening:
            self._heartbeat.beat(limit_s)

    # Messages

    def _receive(self, incoming: Incoming) -> None:
        connection = incoming.connection
        match incoming.message:
            case None:
                self._disconnect(connection)
            case PoolTexts():
                self._submit(connection, incoming.message)
            case Cancel(id=id_):
                self._drop(self._requests.get((id(connection), id_)))
            case Ping(nonce=nonce):
                connection.send(Pong(nonce, self._stats()))
            case Keep():
                self._lifeline.add(connection)
            case Submit(id=id_) | MediaPixels(id=id_) | Grant(id=id_):
                connection.send(Rejected(id_, errors.InvalidRequest.code or "", _NO_TEXT))
            case TestPictures():
                pass  # the node does not test a model without pictures
            case _:
                assert_never(incoming.message)

    def _submit(self, connection: Connection, message: PoolTexts) -> None:
        request = _Request(connection, message, time.monotonic(), len(message.texts))
        try:
            texts = self._read(request)
            if not message.goes_on:
                self._check_room(message.lane)
        except errors.ServingError as error:
            connection.send(Rejected(message.id, error.code or "", error.message))
            return
        self._requests[request.key] = request
        self._waiting.add(texts)
        self._use.begin()

    def _read(self, request: _Request) -> list[WaitingText]:
        """Raises InvalidRequest for tokens that the model would take for others."""
        message = request.message
        if not message.texts or len(message.texts) != len(message.second_starts):
            raise errors.InvalidRequest("The request has no texts.")
        texts = [
            WaitingText(request, index, message.lane, _token_ids(ids), second_start)
            for index, (ids, second_start) in enumerate(
                zip(message.texts, message.second_starts, strict=True)
            )
        ]
        most, vocab_size = self._config.max_context, self._model.vocab_size
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
        options, waiting = self._config.options, self._waiting
        is_full = len(waiting) >= options.max_waiting
        has_share = waiting.num_of(lane) >= options.max_waiting_per_key
        # A request of more texts than may wait runs on an engine that is idle.
        if len(waiting) and (is_full or (lane != (0, 0) and has_share)):
            raise errors.Overloaded(_QUEUE_IS_FULL)

    def _disconnect(self, connection: Connection) -> None:
        self._lifeline.discard(connection)
        for request in list(self._requests.values()):
            if request.connection is connection:
                self._drop(request)

    def _drop(self, request: _Request | None) -> None:
        """Forget a request, and what waits of it."""
        if request is not None and self._requests.pop(request.key, None) is not None:
            self._waiting.drop(request, request.message.lane)

    def _check(self) -> None:
        now = time.monotonic()
        if now < self._next_check_at:
            return
        self._next_check_at = now + _CHECK_INTERVAL_S
        self._log_file.check()
        for request in list(self._requests.values()):
            deadline_s = request.message.deadline_s
            if request.arrived_at + deadline_s < now:
                self._drop(request)
                what = f"The request ran longer than {deadline_s:g} s."
                code = errors.DeadlineExceeded.code or ""
                request.connection.send(Rejected(request.message.id, code, what))

    # Batches

    def _compute(self, batch: Sequence[WaitingText]) -> None:
        """Raises PipelineBroken."""
        num_tokens = max(text.num_tokens for text in batch) * len(batch)
        began_at = time.monotonic()
        self._promise(self._limits.limit_s(num_tokens))
        try:
            vectors = self._model.vectors(batch)
        except RuntimeError as error:
            raise PipelineBroken(f"a batch failed: {error}") from error
        self._computed_at = time.monotonic()
        self._limits.note(num_tokens, self._computed_at - began_at)
        self._num_batches += 1
        self._num_tokens += sum(text.num_tokens for text in batch)
        for text, vector in zip(batch, vectors, strict=True):
            self._keep(text, vector, began_at)
        self._send()

    def _keep(self, text: WaitingText, vector: Vectors, began_at: float) -> None:
        request = text.owner
        assert isinstance(request, _Request)
        if request.queue_s is None:
            request.queue_s = began_at - request.arrived_at
        cut = self._model.cut(vector, request.message.dimensions)
        request.vectors.append((text.index, cut))
        request.num_left -= 1

    def _send(self) -> None:
        """Send what the last batch has made, to each request in one message."""
        for request in [each for each in self._requests.values() if each.vectors]:
            indexes, vectors = zip(*request.vectors, strict=True)
            request.vectors = []
            is_last = request.num_left == 0
            if is_last:
                del self._requests[request.key]
                self._use.end()
            data = np.stack(vectors).astype("<f4").tobytes()
            message = TextVectors(
                request.message.id, indexes, data, is_last, request.queue_s or 0.0
            )
            request.connection.send(message)

    def _probe(self) -> None:
        """Raises PipelineBroken."""
        self._promise(self._limits.limit_s(1))
        try:
            self._model.probe()
        except RuntimeError as error:
            raise PipelineBroken(f"the engine's own probe failed: {error}") from error
        self._computed_at = time.monotonic()

    # Reports

    def _hello(self) -> Hello:
        return Hello(
            protocol_version=PROTOCOL_VERSION,
            pid=os.getpid(),
            max_context=self._config.max_context,
            max_running=self._config.options.max_running,
            digest=self._config.digest,
            num_dimensions=self._model.num_dimensions,
            is_draining=self._use.is_draining,
        )

    def _stats(self) -> EngineStats:
        return EngineStats(
            num_waiting=len(self._waiting),
            num_steps=self._num_batches,
            tokens=TokenCounts(self._num_tokens),
            last_token_age_s=time.monotonic() - self._computed_at,
        )


def _token_ids(data: bytes) -> TokenArray:
    """Raises InvalidRequest for bytes that are no tokens."""
    if not data or len(data) % 4:
        raise errors.InvalidRequest("A text has no tokens.")
    return np.frombuffer(data, "<i4")
