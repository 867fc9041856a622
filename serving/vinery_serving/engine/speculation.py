"""How many tokens are proposed ahead: fewer, or none, where answers are slower with proposals. Each
width gets some steps while the engine serves, and the quickest at the same numbers of streams
stays. For no proposals the model is loaded again without what proposes, in a calm moment."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from vinery_serving.core.request import SpeculativeDecoding

# The most tokens that are proposed in a step; the first: as many as the model's options say.
WIDTHS: Final = (None, 3, 1, 0)
NONE: Final = len(WIDTHS) - 1
# A width is tried for so many steps, and compared at numbers of streams that both have often had.
NUM_TRIED: Final = 128
NUM_COMPARED: Final = 16
RETRY_S: Final = 24 * 3600.0  # after this time all widths are tried again

_Steps = deque[tuple[int, float]]  # tokens and seconds


class Speculation:
    """Which of `WIDTHS` requests get, by its index, and whether the model must be loaded again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The newest steps, by width and number of streams.
        self._steps = defaultdict[tuple[int, int], _Steps](lambda: deque(maxlen=NUM_TRIED))
        self._wanted = 0  # the width that is tried, or was chosen
        self._num_left = NUM_TRIED
        self._chosen_at: float | None = None  # None: not all were tried
        self.is_on = True  # whether the loaded model can propose

    @property
    def must_switch(self) -> bool:
        return self.is_on == (self._wanted == NONE)

    @property
    def loss(self) -> float | None:
        """How much slower answers were with proposals, 0.1 for a tenth; None: they are made."""
        best, none = self._slowness(self._best(NONE)), self._slowness(NONE)
        is_off = self._chosen_at is not None and not self.is_on
        return max(0.0, best / none - 1) if is_off and best and none else None

    def width_for(self, assist: SpeculativeDecoding | None) -> int | None:
        """Return the width of a request; None: the request asks for its own."""
        if not self.is_on:
            return NONE
        if assist is not None and assist.is_asked:
            return None
        return self._best(NONE) if self._wanted == NONE else self._wanted

    def note(self, width: int, num_streams: int, num_tokens: int, took_s: float) -> None:
        """Note a step in which so many streams, all of this width, have got new tokens."""
        self._steps[width, num_streams].append((num_tokens, took_s))
        if width != self._wanted:
            return
        self._num_left -= 1
        if self._num_left > 0 or self._slowness(width) is None:
            return
        self._num_left = NUM_TRIED
        if self._chosen_at is None and width < NONE:
            self._wanted += 1
        elif self._chosen_at is None:
            self._wanted, self._chosen_at = self._best(NONE + 1), self._clock()
        elif self._clock() - self._chosen_at > RETRY_S:
            self._steps.clear()
            self._wanted, self._chosen_at = 0, None

    def _best(self, end: int) -> int:
        """Return the quickest width before the index `end`; of equal ones, the smallest."""
        known = [(slow, -each) for each in range(end) if (slow := self._slowness(each)) is not None]
        return -min(known, default=(1.0, 0))[1]

    def _slowness(self, width: int) -> float | None:
        """Return the time of a token by that with the first width, at the same numbers of streams;
        None: there were too few steps."""
        pairs = [
            (first, steps)
            for (each, num), steps in self._steps.items()
            if each == width and len(steps) >= NUM_COMPARED
            if len(first := self._steps.get((0, num), ())) >= NUM_COMPARED
        ]
        ratios = [_token_s(steps) / _token_s(first) for first, steps in pairs]
        return fmean(ratios, [len(first) for first, _ in pairs]) if pairs else None


def _token_s(steps: Iterable[tuple[int, float]]) -> float:
    # A median: other work of the machine makes single steps slow.
    return median(took_s for _, took_s in steps) / fmean(num for num, _ in steps)


def limited(assist: SpeculativeDecoding, width: int | None) -> SpeculativeDecoding:
    """Return the options of a request with at most the tokens of this width."""
    most = None if width is None else WIDTHS[width]
    if not most:
        return assist
    num_tokens = min(assist.num_tokens or most, most)
    return replace(assist, num_tokens=num_tokens, confidence_threshold=None)
