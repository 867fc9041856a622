"""The engine's estimates from past steps: how long steps take and may take, when pictures may be
encoded, how much of prompts the prefix cache has, and how long requests wait.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any, Final

from vinery_serving.engine.fair_queue import Lane
from vinery_serving.transport.messages import Submit

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
_NEWEST_WAIT: Final = 0.2  # how much the newest wait counts in the mean
_NEWEST_PROMPT: Final = 0.2  # how much the newest prompt counts
# However much was cached before: a key that has repeated one prompt may send another.
_LEAST_UNCACHED: Final = 1 / 8
_MAX_LANES: Final = 1024
# Older measurements count less: by a factor of e after so much time of waiting.
_DECAY_S: Final = 2.0
_LEAST_MEASURED_S: Final = 0.2  # a shorter measurement gives no pace
# How much the newest answer counts in the mean time of an answer, and the newest cost in the mean.
_NEWEST_PART: Final = 0.05
_LEAST_PART: Final = 0.25
_MAX_EXPECTED: Final = 4096  # beyond them the oldest are forgotten
_MAX_EQUAL: Final = 16  # clients of a lane with the same prompt


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


class EncodingWaits:
    """How long requests with pictures wait, each after the previous request."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._since: float | None = None  # when the first waiting request became the first

    def note(self, now: float, *, num_encoded: int, is_waiting: bool) -> None:
        """Note how many requests were encoded just now, and whether others still wait."""
        if num_encoded:
            waited_s = 0.0 if self._since is None else now - self._since
            self.mean_s += _NEWEST_WAIT * (waited_s / num_encoded - self.mean_s)
            self._since = now
        self._since = (self._since or now) if is_waiting else None


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


class _Rate:
    def __init__(self) -> None:
        self._num_tokens = 0.0
        self._duration_s = 0.0

    def add(self, num_tokens: float, duration_s: float) -> None:
        kept = math.exp(-duration_s / _DECAY_S)
        self._num_tokens = self._num_tokens * kept + num_tokens
        self._duration_s = self._duration_s * kept + duration_s

    @property
    def per_s(self) -> float:
        return self._num_tokens / self._duration_s if self._duration_s >= _LEAST_MEASURED_S else 0.0


class Pace:
    """The pace at which waiting requests are admitted, and their mean cost and time. Only the time
    in which something waits counts. While slots are free, prompts limit the pace; while all are
    used, the ends of answers do. So there are two measurements."""

    def __init__(self) -> None:
        self._rates = {True: _Rate(), False: _Rate()}  # by whether all slots are in use
        self._last_at: float | None = None  # while something waits
        self._was_full = False  # after the last admission
        self.mean_cost = 0.0  # tokens of a request
        self.mean_answer_s = 0.0  # from its first step to its end

    def note(self, now: float, *, num_tokens: float, is_waiting: bool, is_full: bool) -> None:
        """Note that requests of so many tokens were admitted just now, whether others still wait,
        and whether all slots are now in use."""
        if self._last_at is not None:
            self._rates[self._was_full].add(num_tokens, now - self._last_at)
        self._last_at, self._was_full = now if is_waiting else None, is_full

    def note_cost(self, num_tokens: float) -> None:
        self.mean_cost = _moved(self.mean_cost, num_tokens)

    def note_answer(self, duration_s: float) -> None:
        self.mean_answer_s = _moved(self.mean_answer_s, duration_s)

    def tokens_per_s(self, num_running: int) -> float:
        """0: not known yet. Without free slots, the running answers make room when they end
        (Little's law). While a few long answers hold all slots, nothing is admitted for a while, so
        the measured pace is at least a part of the law's."""
        per_s = self._rates[self._was_full].per_s
        if not self._was_full or not self.mean_answer_s:
            return per_s
        # The last answer may just have ended, and the next not begun.
        ending_per_s = max(1, num_running) * self.mean_cost / self.mean_answer_s
        return max(per_s, _LEAST_PART * ending_per_s) if per_s else ending_per_s


def _moved(mean: float, value: float) -> float:
    return mean + _NEWEST_PART * (value - mean) if mean else value


class QueueLimit:
    """The times at which refused requests come back: the option `max_queue_s`. Each client of a
    lane gets a later time, and is admitted when it comes back then. A request is recognised by lane
    and the hash of its prompt, which clients repeat."""

    def __init__(self) -> None:
        self._due_at: dict[Hashable, deque[float]] = {}
        self._last_due_at: dict[Lane, float] = {}

    def check(self, submit: Submit, wait_s: float, service_s: float, now: float) -> int | None:
        """Return after how many seconds the client must ask again; None: the request may wait. The
        request would wait for `wait_s`; its lane is served one request in `service_s`."""
        name = submit.lane, hash(submit.prompt_ids)
        if self._comes_back(name, now) or not 0 < submit.max_queue_s < wait_s:
            return None
        last_due_at = self._last_due_at.pop(submit.lane, 0.0)
        due_at = max(now + wait_s - submit.max_queue_s, last_due_at + service_s)
        self._last_due_at[submit.lane] = due_at
        self._due_at.setdefault(name, deque(maxlen=_MAX_EQUAL)).append(due_at)
        _bound(self._due_at)
        _bound(self._last_due_at)
        return max(1, math.ceil(due_at - now))

    def _comes_back(self, name: Hashable, now: float) -> bool:
        times = self._due_at.get(name)
        if times is None or times[0] > now:
            return False
        times.popleft()
        if not times:
            del self._due_at[name]
        return True


def _bound(table: dict[Any, Any]) -> None:
    if len(table) > _MAX_EXPECTED:
        del table[next(iter(table))]
