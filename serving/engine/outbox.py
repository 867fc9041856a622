"""What the engine has to say, and when it says it.

A gateway hears of everything by few frames: acceptances after the step that follows them,
so that a first token made at once comes with them, and tokens in small groups when steps
are quick. First and last tokens never wait.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from serving.engine.batch import Made
from serving.engine.generation import Generation
from serving.transport.messages import Accepted, StepOutputs, TokenOutput
from serving.transport.server import Connection

# A flush costs the gateway about 80 us for each stream while the engine keeps the caches
# busy (measured on two cores). At this interval that is a tenth of a core, which on a small
# machine is taken from the engine itself.
_FLUSH_MS_PER_STREAM: Final = 0.8


class Outbox:
    """`interval_ms` is how long tokens may wait for others, however few streams there are."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._accepted: list[Generation] = []
        # Sets that keep their order: who has tokens to tell, and who must not wait.
        self._waiting: dict[Generation, None] = {}
        self._urgent: dict[Generation, None] = {}
        self._next_flush_at = 0.0

    def accept(self, generation: Generation) -> None:
        """It has a place."""
        self._accepted += (generation, *generation.others)

    def add(self, made: Made) -> None:
        """Its new tokens. They are told together with all that it has not told yet."""
        generation = made.generation
        generation.tokens += made.token_ids
        generation.logprobs += made.logprobs
        generation.finish = made.finish
        if made.finish is not None or generation.is_paused or not generation.has_spoken:
            self._urgent[generation] = None
        else:
            self._waiting[generation] = None

    def forget(self, generation: Generation) -> None:
        """Nobody wants to hear of it any more."""
        self._waiting.pop(generation, None)
        self._urgent.pop(generation, None)

    def send(self, *, num_streams: int, at_once: bool = False) -> None:
        """Call after every step, with how many streams are running."""
        self._send_accepted()
        now = time.monotonic()
        if at_once or now >= self._next_flush_at:
            self._next_flush_at = now + self._pause_s(num_streams)
            _tell(self._waiting | self._urgent)
            self._waiting.clear()
            self._urgent.clear()
        elif self._urgent:
            _tell(self._urgent)
            for generation in self._urgent:
                self._waiting.pop(generation, None)
            self._urgent.clear()

    def _send_accepted(self) -> None:
        for generation in self._accepted:
            if generation.connection is not None:
                generation.connection.send(Accepted(generation.submit.id))
        self._accepted.clear()

    def _pause_s(self, num_streams: int) -> float:
        return max(self._interval_ms, num_streams * _FLUSH_MS_PER_STREAM) / 1000


def _tell(generations: Iterable[Generation]) -> None:
    """One frame for each gateway."""
    outputs: defaultdict[Connection, list[TokenOutput]] = defaultdict(list)
    for generation in generations:
        if generation.connection is not None:
            outputs[generation.connection].append(generation.output())
    for connection, of_connection in outputs.items():
        connection.send(StepOutputs(tuple(of_connection)))
