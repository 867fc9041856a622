"""The engine's estimates from past steps: how long steps take and may take, when pictures may be
encoded, how much of prompts the prefix cache has, and how long requests wait.
"""

import math
from collections import OrderedDict
from typing import Final

from vinery_serving.engine.fair_queue import Lane

_NEWEST_STEP: Final = 0.02  # how much the newest step counts in the means
_LEAST_VARIANCE: Final = 16.0  # of the number of tokens; below, a line through the steps is chance
LEAST_S: Final = 4.0  # however fast the steps were: a busy machine holds a step up, too
# A size that is new to the engine: a device may compile kernels for it first.
_FIRST_S: Final = 30.0
_FACTOR: Final = 20.0  # how many times as long as before a step may take
# The longest step of a size is forgotten slowly: half of it after 700 shorter steps.
_FORGET: Final = 0.999
_NUM_FIRST: Final = 3  # after so many steps of a size, its kernels are compiled
# For each step with a prompt of pictures. A long gap in more than a hundred does not change the p99
# of gaps.
_STEPS_BETWEEN: Final = 120
_MAX_WAIT_S: Final = 5.0
_NEWEST_PROMPT: Final = 0.2  # how much the newest prompt counts
# However much was cached before: a key that has repeated one prompt may send another.
_LEAST_UNCACHED: Final = 1 / 8
_MAX_LANES: Final = 1024
_NEWEST_ANSWER: Final = 0.05  # how much the newest answer counts in the mean


class StepTimes:
    """The time of a step, and what each token of a prompt adds: a line through the latest steps, by
    least squares. So a slice of a long prompt takes about as long as the rest of the step."""

    def __init__(self) -> None:
        # Of tokens, seconds, tokens squared, and the product of tokens and seconds.
        self._means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)

    def note(self, num_prompt_tokens: int, step_s: float) -> None:
        new = (num_prompt_tokens, step_s, num_prompt_tokens**2, num_prompt_tokens * step_s)
        pairs = zip(self._means, new, strict=True)
        self._means = tuple(mean + _NEWEST_STEP * (each - mean) for mean, each in pairs)

    def num_affordable(self, least: int, most: int) -> int:
        tokens, seconds, squares, products = self._means
        variance, covariance = squares - tokens**2, products - tokens * seconds
        if variance < _LEAST_VARIANCE:
            return least
        rest = seconds * variance - covariance * tokens
        return int(min(most, max(least, rest / covariance))) if covariance > 0 else most


class StepLimits:
    """Knows the longest recent step of each size. Sizes are powers of two of tokens. A step of n
    tokens never takes longer than n steps of one token: the weights are read once for all tokens.
    So a size with `_NUM_FIRST` steps is judged by its own longest step, and any other size by the
    longest steps up to this size."""

    def __init__(self, ceiling_s: float) -> None:
        self._ceiling_s = ceiling_s
        self._longest_s: dict[int, float] = {}  # by size
        self._nums: dict[int, int] = {}

    def note(self, num_tokens: int, took_s: float) -> None:
        size = num_tokens.bit_length()
        self._longest_s[size] = max(took_s, self._longest_s.get(size, 0.0) * _FORGET)
        self._nums[size] = self._nums.get(size, 0) + 1

    def limit_s(self, num_tokens: int) -> float:
        size = num_tokens.bit_length()
        longest_s = self._longest_s.get(size)
        if longest_s is not None and self._nums[size] >= _NUM_FIRST:
            return min(max(LEAST_S, _FACTOR * longest_s), self._ceiling_s)
        known = self._longest_s.items()
        smaller = [took_s * (1 << (size - each)) for each, took_s in known if each <= size]
        least_s = min(smaller, default=math.inf)
        return min(max(_FIRST_S, _FACTOR * least_s), self._ceiling_s)


class EncodingPace:
    """Requests with pictures join rarely, so that long gaps between the tokens of streams stay
    rare, but do not wait for long. Times are of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._num_steps = 0  # since the last encoding
        self._num_needed = 0
        self._encoded_at = 0.0

    def note_step(self) -> None:
        self._num_steps += 1

    def note_encoding(self, num_prefill_steps: int, now: float) -> None:
        self._num_steps, self._encoded_at = 0, now
        self._num_needed = _STEPS_BETWEEN * num_prefill_steps

    def may_encode(self, now: float, *, num_streams: int, is_idle: bool) -> bool:
        """Whether a request with pictures may be added now. `num_streams` get tokens in each step;
        `is_idle`: there is nothing to step for."""
        if self._num_steps == 0 and self._num_needed:
            return is_idle  # at most one between two steps
        is_rare = self._num_steps >= self._num_needed
        return is_rare or num_streams == 0 or now - self._encoded_at >= _MAX_WAIT_S


class CachedParts:
    """How much of each lane's recent prompts the prefix cache had. Each lane has an estimate:
    otherwise a key's uncached prompts pass for short beside another key's cached prompts."""

    def __init__(self) -> None:
        self._uncached: OrderedDict[Lane, float] = OrderedDict()  # the most recent last

    def uncached(self, lane: Lane) -> float:
        return max(_LEAST_UNCACHED, self._uncached.get(lane, 1.0))

    def note(self, lane: Lane, *, num_cached: int, num_tokens: int) -> None:
        """Note how many tokens of a prompt the cache had, of `num_tokens` that were not known to be
        cached."""
        uncached = 1 - min(1.0, max(0, num_cached) / max(1, num_tokens))
        before = self._uncached.pop(lane, 1.0)
        self._uncached[lane] = before + _NEWEST_PROMPT * (uncached - before)
        if len(self._uncached) > _MAX_LANES:
            self._uncached.popitem(last=False)


class AnswerTimes:
    """How long answers take, which tells how long requests wait for a slot (Little's law)."""

    def __init__(self) -> None:
        self._mean_s = 0.0  # from the first step to the end; 0: not known yet

    def note(self, duration_s: float) -> None:
        newest = _NEWEST_ANSWER if self._mean_s else 1.0
        self._mean_s += newest * (duration_s - self._mean_s)

    def wait_s(self, num_ahead: int, num_running: int) -> float:
        return num_ahead * self._mean_s / max(1, num_running)
