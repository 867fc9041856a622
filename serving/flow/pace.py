"""`stream_interval`: fewer and larger chunks, for clients to whom each chunk is a cost.

The tokens themselves are read as they come, so that a stop string ends a choice as early as
ever; only telling waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.core.events import Event, Finished, TokensGenerated
from serving.output.writer import merged


class Pace:
    """Of one choice: holds its events until they are those of `interval` tokens. The first
    and the last never wait."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held: list[Event] = []
        self._num_tokens = 0
        self._has_told = False

    def take(self, events: Sequence[Event], num_tokens: int) -> list[Event]:
        """What can be told now, after `num_tokens` more tokens that made these events."""
        self._held += events
        self._num_tokens += num_tokens
        is_over = bool(events) and isinstance(events[-1], Finished)
        if is_over or not self._has_told or self._num_tokens >= self._interval:
            return self.release()
        return []

    def release(self) -> list[Event]:
        """All that is held. Text that belongs together is one delta, and so are ids."""
        ids = [each for each in self._held if isinstance(each, TokensGenerated)]
        told = merged(each for each in self._held if not isinstance(each, TokensGenerated))
        if ids:
            joined = tuple(id_ for each in ids for id_ in each.token_ids)
            text = "".join(each.text for each in ids)
            told.insert(0, TokensGenerated(ids[0].choice, joined, text))
        self._held = []
        self._num_tokens = 0
        self._has_told = self._has_told or bool(told)
        return told
