"""How often the engine stops its steps to encode pictures.

GenAI encodes a request's pictures while the request is added, and no stream gets a token meanwhile.
Then the prompt is prefilled, in steps that are longer than those that only decode. Each stream has
a long gap for each of them. So that such gaps stay rare, running streams get many steps before
further pictures come. A picture does not wait for long, either.
"""

from typing import Final

# For each step with a prompt of pictures. One long gap in more than a hundred leaves the p99 of
# gaps as it is.
_STEPS_BETWEEN: Final = 120
_MAX_WAIT_S: Final = 5.0
# How much the newest wait counts in the mean.
_NEWEST_PART: Final = 0.2


class EncodingPace:
    """Knows when pictures may be encoded. Times are of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._num_steps = 0  # since the last encoding
        self._num_needed = 0
        self._encoded_at = 0.0

    def note_step(self) -> None:
        self._num_steps += 1

    def note_encoding(self, num_prefill_steps: int, now: float) -> None:
        """Note that pictures were encoded, whose prompt is prefilled in so many steps."""
        self._num_steps, self._encoded_at = 0, now
        self._num_needed = _STEPS_BETWEEN * num_prefill_steps

    def may_encode(self, now: float, *, num_streams: int, is_idle: bool) -> bool:
        """Whether a request with pictures may be added now. `num_streams` get tokens in each step;
        `is_idle`: there is nothing to step for."""
        if self._num_steps == 0 and self._num_needed:
            return is_idle  # at most one between two steps
        is_rare = self._num_steps >= self._num_needed
        return is_rare or num_streams == 0 or now - self._encoded_at >= _MAX_WAIT_S


class EncodingWaits:
    """How long requests with pictures wait, each after the one before it."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._since: float | None = None  # when the first one that waits became the first

    def note(self, now: float, *, num_encoded: int, is_waiting: bool) -> None:
        """Note that so many were added just now, and whether others still wait."""
        if num_encoded:
            waited_s = 0.0 if self._since is None else now - self._since
            self.mean_s += _NEWEST_PART * (waited_s / num_encoded - self.mean_s)
            self._since = now
        self._since = (self._since or now) if is_waiting else None
