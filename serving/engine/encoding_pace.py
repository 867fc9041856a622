"""How often the engine stops its steps to encode pictures.

GenAI encodes a request's pictures while the request is added, and no stream gets a token meanwhile.
Each stream then has one long gap. So that gaps stay rare, streams get many steps between two
encodings, unless an encoding is too short to be noticed. A picture does not wait for long, either.
"""

from typing import Final

# One long gap in more than a hundred leaves the p99 of gaps as it is.
_STEPS_BETWEEN: Final = 120
_MAX_WAIT_S: Final = 5.0
# An encoding that takes less than this part of a step is not noticed.
_UNNOTICED_PART: Final = 0.4
_NEWEST_PART: Final = 0.1


class EncodingPace:
    """Knows when pictures may be encoded. Times are of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._num_steps = _STEPS_BETWEEN  # since the last encoding
        self._encoded_at = 0.0
        self._step_s = 0.0  # of a step, on average; 0: not known
        self._pixel_s = 0.0  # of a pixel's encoding

    def note_step(self, took_s: float) -> None:
        self._num_steps += 1
        self._step_s += _NEWEST_PART * (took_s - self._step_s) if self._step_s else took_s

    def note_encoding(self, num_pixels: int, took_s: float, now: float) -> None:
        self._num_steps, self._encoded_at = 0, now
        self._pixel_s = took_s / max(1, num_pixels)

    def may_encode(self, num_pixels: int, now: float, *, num_streams: int, is_idle: bool) -> bool:
        """Whether a request with so many pixels may be added now. `num_streams` get tokens in each
        step; `is_idle`: there is nothing to step for."""
        if self._num_steps == 0:
            return is_idle  # at most one between two steps
        if num_streams == 0 or self._num_steps >= _STEPS_BETWEEN:
            return True
        if num_pixels * self._pixel_s < _UNNOTICED_PART * self._step_s:
            return True
        return now - self._encoded_at >= _MAX_WAIT_S
