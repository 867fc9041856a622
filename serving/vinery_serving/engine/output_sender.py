"""Sends the engine's outputs to the gateways in few frames. Acceptances are sent after the next
step, so that a first token of that step follows at once."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from vinery_serving.engine.generation import GeneratedTokens, Generation
from vinery_serving.transport.messages import Accepted, StepOutputs, TokenOutput
from vinery_serving.transport.server import Connection

# A flush wakes the gateway, and then its clients. On a small machine, both of the engine's threads
# wait for that. So steps below 4 ms are sent two or more together, at most this long: a screen
# shows no more.
_LEAST_MS: Final = 8.0
# With many streams a flush costs the gateway about 50 us a stream. At this interval that is a tenth
# of a core, or less with fewer streams.
_MS_PER_STREAM: Final = 0.8
_MS_PER_STREAM_SQUARED: Final = 0.04


def flush_interval_ms(num_streams: int) -> float:
    """How long tokens wait for others at most, in milliseconds, unless a step takes longer."""
    of_streams = min(_MS_PER_STREAM, num_streams * _MS_PER_STREAM_SQUARED) * num_streams
    return max(_LEAST_MS, of_streams)


class OutputSender:
    def __init__(self, interval_ms: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`interval_ms` is how long tokens may be delayed, however few streams there are. `clock`
        returns seconds."""
        self._interval_ms = interval_ms
        self._clock = clock
        self._last_step_at = 0.0
        # Whose acceptance is due, and whether their prompts are begun.
        self._accepted: dict[Generation, bool] = {}
        # Ordered sets of the generations with unsent tokens.
        self._delayed: dict[Generation, None] = {}
        self._urgent: dict[Generation, None] = {}
        self._next_flush_at = 0.0

    def accept(self, generation: Generation) -> None:
        self._accepted |= dict.fromkeys((generation, *generation.other_beams), False)

    def begin(self, generation: Generation) -> None:
        """Report that the prompt, or its first slice, is begun, unless the first token has come."""
        if not (generation.tokens or generation.num_sliced):
            self._accepted[generation] = True

    def add(self, new: GeneratedTokens) -> None:
        """Take new tokens, to be sent together with all unsent tokens of the generation."""
        generation = new.generation
        generation.tokens += new.token_ids
        generation.logprobs += new.logprobs
        generation.finish = new.finish
        if new.finish is not None or generation.is_paused or not generation.has_sent_output:
            self._urgent[generation] = None
        else:
            self._delayed[generation] = None

    def forget(self, generation: Generation) -> None:
        self._delayed.pop(generation, None)
        self._urgent.pop(generation, None)

    def send(self, *, num_streams: int, at_once: bool = False) -> None:
        """Send what is due. `num_streams` generations are running."""
        for generation, is_begun in self._accepted.items():
            if generation.connection is not None:
                grammar = generation.submit.grammar
                unenforced = grammar.unenforced if grammar is not None else ""
                generation.connection.send(Accepted(generation.submit.id, unenforced, is_begun))
        self._accepted.clear()
        now = self._clock()
        # The next step ends then, if it takes as long as the last.
        next_step_at = now + (now - self._last_step_at)
        self._last_step_at = now
        if at_once or next_step_at > self._next_flush_at:
            interval_ms = max(self._interval_ms, flush_interval_ms(num_streams))
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
