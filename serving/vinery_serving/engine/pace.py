"""How fast the wait queue is served, for estimates of how long a request would wait, and who is
refused at its arrival because it would wait longer than it may.

Only the time in which something waits counts, so an idle engine does not seem slow. While slots are
free, prompts limit the pace; when none is, the ends of answers do. The two paces differ much, so
each has its own measurement.
"""

import math
from collections import deque
from collections.abc import Hashable
from typing import Any, Final

from vinery_serving.engine.fair_queue import Lane
from vinery_serving.transport.messages import Submit

# Older measurements count less: by a factor of e after so much time of waiting.
_DECAY_S: Final = 2.0
# A shorter measurement gives no pace.
_LEAST_S: Final = 0.2
# How much the newest answer counts in the mean time of an answer, and the newest cost in the mean.
_NEWEST_PART: Final = 0.05
_LEAST_PART: Final = 0.25
_MAX_EXPECTED: Final = 4096  # beyond them the oldest are forgotten
_MAX_EQUAL: Final = 16  # clients of a lane with the same prompt


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
        return self._num_tokens / self._duration_s if self._duration_s >= _LEAST_S else 0.0


class Pace:
    """The pace at which waiting requests are admitted, and what they are like on average."""

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
        """0: not known yet.

        Without free slots, the running answers make room when they end (Little's law). This is the
        pace until it was measured. While a few long answers hold all slots, nothing is admitted for
        a while, and the pace seems to be nothing. So it is at least a part of that.
        """
        per_s = self._rates[self._was_full].per_s
        if not self._was_full or not self.mean_answer_s:
            return per_s
        # The last answer may just have ended, and the next not begun.
        ending_per_s = max(1, num_running) * self.mean_cost / self.mean_answer_s
        return max(per_s, _LEAST_PART * ending_per_s) if per_s else ending_per_s


def _moved(mean: float, value: float) -> float:
    return mean + _NEWEST_PART * (value - mean) if mean else value


class QueueLimit:
    """The times at which refused requests come back: the option `max_queue_s`.

    A refused client gets the time at which there is room for it, each of a lane a later one. Then
    it is admitted, also if others have come before it. A request is recognised by its lane and its
    prompt, which clients repeat; nothing but a hash is kept.
    """

    def __init__(self) -> None:
        self._due_at: dict[Hashable, deque[float]] = {}
        self._last_due_at: dict[Lane, float] = {}

    def check(self, submit: Submit, wait_s: float, service_s: float, now: float) -> int | None:
        """Return after how many seconds a request must come back; None: it may wait.

        It would wait for `wait_s`, and its lane is served one request in `service_s`.
        """
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
        """Whether a request comes back at its time. It does so once."""
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
