"""What the engine knows from past steps: how long steps take and may take, when pictures may be
encoded, how much of prompts the prefix cache has, how long requests wait, and recent speeds."""

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from vinery_serving.core.events import TokenCounts
from vinery_serving.engine.fair_queue import Lane

_NEWEST_STEP: Final = 0.02  # how much the newest step counts in the means
_SLICE_BY_REST: Final = 1.5  # how long a slice of a prompt may take, by the rest of its step
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
_WINDOW_S: Final = 10.0  # speeds are of this time
_SAMPLE_INTERVAL_S: Final = 1.0
_NUM_REQUESTS: Final = 200  # waits are of so many requests


class StepTimes:
    """The time of a step, and what each token of a prompt adds: a line through the latest steps, by
    least squares. So a slice of a long prompt takes a time that streams do not notice."""

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
        if covariance <= 0:
            return most
        return int(min(most, max(least, _SLICE_BY_REST * rest / covariance)))


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


class Figures:
    """The recent speeds and waits of an engine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._samples: deque[tuple[float, TokenCounts]] = deque()  # with times, in seconds
        self._first_tokens_s: deque[float] = deque(maxlen=_NUM_REQUESTS)
        self._inter_tokens_s: deque[float] = deque(maxlen=_NUM_REQUESTS)
        # Since the start of the process.
        self.num_steps = 0
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0  # of them
        self.num_output_tokens = 0
        self.num_unused_tokens = 0
        self._num_proposed = 0  # draft tokens
        self._num_accepted = 0

    @property
    def tokens(self) -> TokenCounts:
        """The counters. Draft tokens count at the end of a request."""
        return TokenCounts(
            num_prompt_tokens=self.num_prompt_tokens,
            num_cached_tokens=self.num_cached_tokens,
            num_output_tokens=self.num_output_tokens,
            num_proposed_tokens=self._num_proposed,
            num_accepted_tokens=self._num_accepted,
        )

    def sample(self) -> None:
        """Note the counters, unless they were noted a moment ago."""
        now_s = self._clock()
        if self._samples and now_s - self._samples[-1][0] < _SAMPLE_INTERVAL_S:
            return
        self._samples.append((now_s, self.tokens))
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - _WINDOW_S:
            self._samples.popleft()

    def first_token(self, wait_s: float, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        self._first_tokens_s.append(wait_s)
        self.num_prompt_tokens += num_prompt_tokens
        self.num_cached_tokens += num_cached_tokens

    def ended(
        self, generated_s: float, num_gaps: int, num_proposed: int, num_accepted: int
    ) -> None:
        if num_gaps > 0:
            self._inter_tokens_s.append(generated_s / num_gaps)
        self._num_proposed += num_proposed
        self._num_accepted += num_accepted

    @property
    def tokens_per_s(self) -> tuple[float, float]:
        if not self._samples:
            return 0.0, 0.0
        at_s, first = self._samples[0]
        passed_s = max(self._clock() - at_s, _SAMPLE_INTERVAL_S)
        num_prompt = self.num_prompt_tokens - first.num_prompt_tokens
        return num_prompt / passed_s, (self.num_output_tokens - first.num_output_tokens) / passed_s

    @property
    def first_token_s(self) -> tuple[float, float] | None:
        """The median and the 95th percentile of waits for the first token; None: no request."""
        return _percentiles(self._first_tokens_s)

    @property
    def inter_token_s(self) -> tuple[float, float] | None:
        """Median and 95th percentile of the mean times between tokens of a request; or None."""
        return _percentiles(self._inter_tokens_s)


def _percentiles(durations_s: Iterable[float]) -> tuple[float, float] | None:
    ordered = sorted(durations_s)
    if not ordered:
        return None
    last = len(ordered) - 1
    return ordered[last // 2], ordered[round(last * 0.95)]
