"""Sends the engine's outputs to the gateways in few frames.

Acceptances are sent after the next step, so that a first token of that step follows at once.
Tokens are sent in groups when steps are short. First and last tokens are not delayed.
"""

import time
from collections import defaultdict
from typing import Final

from serving.engine.generation import GeneratedTokens, Generation
from serving.transport.messages import Accepted, StepOutputs, TokenOutput
from serving.transport.server import Connection

# A flush costs the gateway about 80 us a stream while the engine keeps the CPU caches busy
# (measured on two cores). At this interval that is a tenth of a core, which a small machine takes
# from the engine.
_FLUSH_MS_PER_STREAM: Final = 0.8


class OutputSender:
    """Collects outputs on the engine's thread. The loop calls `send` after every step."""

    def __init__(self, interval_ms: float) -> None:
        """`interval_ms` is how long tokens may be delayed, however few streams there are."""
        self._interval_ms = interval_ms
        self._accepted: list[Generation] = []
        # Ordered sets of the generations with unsent tokens.
        self._delayed: dict[Generation, None] = {}
        self._urgent: dict[Generation, None] = {}
        self._next_flush_at = 0.0

    def accept(self, generation: Generation) -> None:
        """Report that the generation is valid, and runs or waits."""
        self._accepted += (generation, *generation.other_beams)

    def add(self, new: GeneratedTokens) -> None:
        """Take new tokens. They are sent together with all unsent tokens of the generation."""
        generation = new.generation
        generation.tokens += new.token_ids
        generation.logprobs += new.logprobs
        generation.finish = new.finish
        if new.finish is not None or generation.is_paused or not generation.has_sent_output:
            self._urgent[generation] = None
        else:
            self._delayed[generation] = None

    def forget(self, generation: Generation) -> None:
        """Drop the unsent tokens of a cancelled generation."""
        self._delayed.pop(generation, None)
        self._urgent.pop(generation, None)

    def send(self, *, num_streams: int, at_once: bool = False) -> None:
        """Send what is due. `num_streams` generations are running."""
        for generation in self._accepted:
            if generation.connection is not None:
                generation.connection.send(Accepted(generation.submit.id))
        self._accepted.clear()
        now = time.monotonic()
        if at_once or now >= self._next_flush_at:
            interval_ms = max(self._interval_ms, num_streams * _FLUSH_MS_PER_STREAM)
            self._next_flush_at = now + interval_ms / 1000
            self._urgent |= self._delayed
            self._delayed.clear()
        outputs: defaultdict[Connection, list[TokenOutput]] = defaultdict(list)
        for generation in self._urgent:
            self._delayed.pop(generation, None)
            if generation.connection is not None:
                outputs[generation.connection].append(generation.output())
        self._urgent.clear()
        for connection, of_connection in outputs.items():
            connection.send(StepOutputs(tuple(of_connection)))
