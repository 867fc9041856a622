"""The recent speeds and waits of an engine. Belongs to the engine's thread."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from vinery_serving.core.events import TokenCounts

_WINDOW_S: Final = 10.0  # speeds are of this time
_SAMPLE_INTERVAL_S: Final = 1.0
_NUM_REQUESTS: Final = 200  # waits are of so many requests


class Figures:
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
