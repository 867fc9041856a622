"""What the engine has to say, and when it says it.

A gateway hears of everything by few frames: acceptances after the step that follows them,
so that a first token made at once comes with them, and tokens in small groups when steps
are quick. First and last tokens never wait.
"""

from __future__ import annotations

import time
from collections import defaultdict
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
    """`interval_ms` is how long tokens may wait for others; 0: never."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._accepted: list[Generation] = []
        self._outputs: defaultdict[Connection, list[TokenOutput]] = defaultdict(list)
        self._urgent_ids: set[int] = set()
        self._next_flush_at = 0.0

    def accept(self, generation: Generation) -> None:
        """It has a place."""
        self._accepted.append(generation)

    def add(self, made: Made) -> None:
        """Its new tokens."""
        generation = made.generation
        if generation.connection is not None:
            if made.finish is not None or not generation.tokens:
                self._urgent_ids.add(generation.submit.id)
            output = generation.output(made.token_ids, made.finish)
            self._outputs[generation.connection].append(output)

    def send(self, *, num_streams: int, at_once: bool = False) -> None:
        """Call after every step, with how many streams are running."""
        self._send_accepted()
        now = time.monotonic()
        if at_once or now >= self._next_flush_at:
            self._next_flush_at = now + self._pause_s(num_streams)
            self._send_all()
        elif self._urgent_ids:
            self._send_urgent()

    def _send_all(self) -> None:
        for connection, outputs in self._outputs.items():
            connection.send(StepOutputs(tuple(outputs)))
        self._outputs.clear()
        self._urgent_ids.clear()

    def _send_urgent(self) -> None:
        """What belongs to generations that begin or end, with all that they had waiting. Ids
        are unique on a connection only: another gateway's namesake just gets its own early."""
        for connection, outputs in self._outputs.items():
            urgent = [output for output in outputs if output.id in self._urgent_ids]
            if urgent:
                connection.send(StepOutputs(tuple(urgent)))
                outputs[:] = [each for each in outputs if each.id not in self._urgent_ids]
        self._urgent_ids.clear()

    def _send_accepted(self) -> None:
        for generation in self._accepted:
            if generation.connection is not None:
                generation.connection.send(Accepted(generation.submit.id))
        self._accepted.clear()

    def _pause_s(self, num_streams: int) -> float:
        if not self._interval_ms:
            return 0.0
        return max(self._interval_ms, num_streams * _FLUSH_MS_PER_STREAM) / 1000
