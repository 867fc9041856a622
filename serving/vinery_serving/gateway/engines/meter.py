"""The tokens and times of a request so far: for usage records, limits and metrics."""

import time
from bisect import bisect_left
from dataclasses import dataclass, field, replace

from vinery_serving.core.events import NO_TOKENS, TokenCounts
from vinery_serving.core.media import NO_MEDIA, MediaUsage


@dataclass(slots=True)
class Meter:
    """Updated with every output of the engine. Times are seconds of the monotonic clock."""

    started_at: float = field(default_factory=time.monotonic)
    tokens: TokenCounts = NO_TOKENS  # so far
    earlier: TokenCounts = NO_TOKENS  # of the summary that was written before the answer
    num_earlier_media_tokens: int = 0
    queue_s: float | None = None
    prefill_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    media: MediaUsage = NO_MEDIA
    # The tokens of pictures and clips in the prompt: indexes of the first, and after the last.
    media_spans: tuple[tuple[int, int], ...] = ()
    encode_s: float | None = None  # the engine's time for pictures and clips
    num_answers: int = 1  # generated in parallel
    num_continuations: int = 0  # by another engine, because one had ended
    finish_reason: str = ""  # of the answer that ended last; `QUOTA` if a limit ended any answer
    accepted_s: float | None = None  # when the request was in an engine's queue
    is_prefilling: bool = False  # an engine computes the prompt in several steps
    unenforced: str = ""  # fields whose schemas are not strict and were too large
    has_begun: bool = False  # an engine has computed the prompt; nothing is charged before

    @property
    def billed_tokens(self) -> TokenCounts:
        """The tokens so far; none of a prompt until an engine has computed it."""
        if not self.has_begun:
            return self.earlier
        # A sum takes some 10 us, and is asked for several times in a request.
        return self.tokens if self.earlier is NO_TOKENS else self.earlier + self.tokens

    @property
    def waited_s(self) -> float | None:
        """The time in the engine's queue, also of a request that has left it."""
        if self.queue_s is not None or self.accepted_s is None:
            return self.queue_s
        return self.total_s - self.accepted_s

    @property
    def num_new_media_tokens(self) -> int:
        """The tokens of media that were not cached: cached tokens are the start of the prompt."""
        cached = self.tokens.num_cached_tokens
        new = sum(max(0, end - max(start, cached)) for start, end in self.media_spans)
        return self.num_earlier_media_tokens + new

    @property
    def inter_token_s(self) -> float | None:
        """The mean time between two tokens of an answer; None for fewer than two."""
        num_gaps = self.tokens.num_output_tokens / self.num_answers - 1
        if self.first_token_s is None or self.last_token_s is None or num_gaps < 1:
            return None
        return (self.last_token_s - self.first_token_s) / num_gaps

    @property
    def total_s(self) -> float:
        return time.monotonic() - self.started_at

    def begin(self, queue_s: float, prefill_s: float | None, num_cached_tokens: int) -> None:
        """Record the first tokens of a choice. Only the times of the first choice count."""
        if num_cached_tokens:
            num_cached_tokens += self.tokens.num_cached_tokens
            self.tokens = replace(self.tokens, num_cached_tokens=num_cached_tokens)
        if self.first_token_s is None:
            self.first_token_s = self.total_s
            self.queue_s, self.prefill_s = queue_s, prefill_s

    def begin_answer(self) -> None:
        """The answer comes after a summary. Its times are those of the request."""
        self.num_earlier_media_tokens, self.media_spans = self.num_new_media_tokens, ()
        self.earlier, self.tokens, self.has_begun = self.billed_tokens, NO_TOKENS, False
        self.queue_s = self.prefill_s = self.first_token_s = None

    def restart(self) -> None:
        """Drop the counts of a lost engine: the client does not pay for them."""
        tokens = self.tokens
        self.tokens = TokenCounts(
            num_prompt_tokens=tokens.num_prompt_tokens,
            num_image_tokens=tokens.num_image_tokens,
            num_video_tokens=tokens.num_video_tokens,
        )
        self.queue_s = self.prefill_s = self.first_token_s = None


class Histogram:
    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self._bounds_ms = [bound * 1000 for bound in bounds_s]
        self.nums = [0] * (len(bounds_s) + 1)  # the last: above all bounds
        self.sum_ms = 0.0

    def count(self, duration_ms: float, times: int = 1) -> None:
        """Count a duration. A duration equal to a bound counts for that bound."""
        self.nums[bisect_left(self._bounds_ms, duration_ms)] += times
        self.sum_ms += duration_ms * times
