"""What is limited and what is asked for. Nouns only.

Inside the limiters every amount is a whole number of grains: 60,000 to one request, token
or place. A bucket that refills `amount` units in a minute then refills `amount` grains in
a millisecond, and a weight in thousandths is a whole number of them too. So all arithmetic
is exact, also in Lua, whose numbers are doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from zoneinfo import ZoneInfo

import msgspec

GRAINS = 60_000
_GRAINS_PER_THOUSANDTH = GRAINS // 1000

# In grains this is 6e15, below 2**53: the last whole number that a double tells apart.
MAX_AMOUNT = 100_000_000_000


class Metric(StrEnum):
    """What a rule counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    CONCURRENCY = "concurrency"
    WEIGHTED_TOKENS = "weighted_tokens"

    @property
    def is_of_tokens(self) -> bool:
        """Whether it grows with the length of a request."""
        return self not in (Metric.REQUESTS, Metric.CONCURRENCY)


class Window(StrEnum):
    """What period a rule's amount is for."""

    MINUTE = "minute"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    NONE = "none"


class Weekday(StrEnum):
    """On which day a week begins. In their order: the first is the usual one."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


class Kind(IntEnum):
    """How a rule is counted. The numbers are also those of the Lua scripts."""

    BUCKET = 0  # refills all the time
    CALENDAR = 1  # starts anew at midnight, on a day of the week or on the first of a month
    TOTAL = 2  # for ever
    PLACES = 3  # held while a request runs


# Of these more is reserved than may be used. Prompts and requests are known to be.
_GIVEN_BACK = (Metric.TOKENS, Metric.OUTPUT_TOKENS, Metric.WEIGHTED_TOKENS)

_COLUMN = {metric: column for column, metric in enumerate(Metric)}
_KIND = {
    Window.MINUTE: Kind.BUCKET,
    Window.DAY: Kind.CALENDAR,
    Window.WEEK: Kind.CALENDAR,
    Window.MONTH: Kind.CALENDAR,
    Window.NONE: Kind.TOTAL,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """At most `amount` of a metric in a window, for everybody in a scope together.

    `scope` is `key:<id>`, `user:<id>`, `project:<id>`, `organization:<id>`, `model:<name>`
    or `platform`. `time_zone` is an IANA name and says where midnight is;
    `week_start` matters to weeks alone. A shadow rule is counted as if it were enforced, and
    refuses nothing.

    Concurrency has no window. Other metrics without one are a budget for ever. What is
    used survives a change of `amount` and `is_shadow`, and of the id in `scope`: a limit goes
    over from a key to the one that replaces it. It does not survive a change of the rest.

    Raises ValueError for a combination that means nothing, and
    `zoneinfo.ZoneInfoNotFoundError` for an unknown time zone.
    """

    id: int
    scope: str
    metric: Metric
    window: Window
    amount: int
    time_zone: str = "UTC"
    is_shadow: bool = False
    week_start: Weekday = Weekday.MONDAY

    # Made from the others once, because a request asks for them many times.
    key: str = field(init=False, repr=False, compare=False)
    kind: Kind = field(init=False, repr=False, compare=False)
    column: int = field(init=False, repr=False, compare=False)
    capacity: int = field(init=False, repr=False, compare=False)  # grains
    # What its windows depend on: rules of the calendar that have it in common share them.
    period: tuple[str, str, str] = field(init=False, repr=False, compare=False)
    # Whether it refuses for long what a request that has ended may give back a moment later.
    may_come_back: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.amount <= MAX_AMOUNT:
            raise ValueError(f"amount must be from 0 to {MAX_AMOUNT}")
        if self.metric is Metric.CONCURRENCY and self.window is not Window.NONE:
            raise ValueError("concurrency is what runs now: it has no window")
        kind = Kind.PLACES if self.metric is Metric.CONCURRENCY else _KIND[self.window]
        of = self.scope.partition(":")[0]
        key = f"{self.id}:{of}:{self.metric.value}:{self.window.value}"
        if kind is Kind.CALENDAR:
            key += f":{ZoneInfo(self.time_zone).key}"
        if self.window is Window.WEEK:
            key += f":{self.week_start.value}"
        _derive(self, "key", key)
        _derive(self, "kind", kind)
        _derive(self, "column", _COLUMN[self.metric])
        _derive(self, "capacity", self.amount * GRAINS)
        _derive(self, "period", (self.window.value, self.time_zone, self.week_start.value))
        _derive(self, "may_come_back", self.is_quota and self.metric in _GIVEN_BACK)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def is_quota(self) -> bool:
        """Whether waiting a little does not help once it is used up."""
        return self.kind in (Kind.CALENDAR, Kind.TOTAL)


def _derive(rule: Rule, name: str, value: object) -> None:
    object.__setattr__(rule, name, value)


@dataclass(frozen=True, slots=True)
class Weights:
    """What one token of each sort counts in weighted tokens, in thousandths of one."""

    uncached_milli: int = 1000
    cached_milli: int = 1000
    output_milli: int = 1000
    image_milli: int = 1000

    def __post_init__(self) -> None:
        milli = (self.uncached_milli, self.cached_milli, self.output_milli, self.image_milli)
        if min(milli) < 0:
            raise ValueError("a weight cannot be negative")


EQUAL_WEIGHTS = Weights()

# Grains by `Rule.column`.
Costs = tuple[int, int, int, int, int, int]


class Claim(msgspec.Struct, frozen=True):
    """What one request wants before it runs: its input, and the first tokens of its answer.

    `lease_id` is the request's id, unique for ever. No rule may stand in `rules` twice.
    Cached and image tokens are part of the input, and none is both. Claim as cached only
    what certainly is: what turns out dearer than claimed is owed, not refused. `owner` says
    whose turn it is where requests wait in line (`lines.QueueingLimiter`).
    """

    lease_id: str
    rules: tuple[Rule, ...]
    num_input_tokens: int
    num_output_tokens: int
    num_cached_tokens: int = 0
    num_image_tokens: int = 0
    weights: Weights = EQUAL_WEIGHTS
    owner: str = ""

    def __post_init__(self) -> None:
        _check_counts(
            self.num_input_tokens,
            self.num_cached_tokens,
            self.num_image_tokens,
            self.num_output_tokens,
        )

    def costs(self) -> Costs:
        """What each metric is charged, in grains."""
        return _costs(
            1,
            self.num_input_tokens,
            self.num_cached_tokens,
            self.num_image_tokens,
            self.num_output_tokens,
            self.weights,
        )

    def costs_per_output_token(self) -> Costs:
        """What one more token of the answer costs, in grains."""
        return (0, GRAINS, 0, GRAINS, 0, self.weights.output_milli * _GRAINS_PER_THOUSANDTH)


class Spent(msgspec.Struct, frozen=True):
    """What a request has used in the end.

    `num_requests` 0: it never ran, for a reason that is not the client's, and is not counted.
    """

    num_input_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_image_tokens: int = 0
    num_requests: int = 1

    def __post_init__(self) -> None:
        _check_counts(
            self.num_input_tokens,
            self.num_cached_tokens,
            self.num_image_tokens,
            self.num_output_tokens,
        )

    def costs(self, weights: Weights) -> Costs:
        """What each metric is charged, in grains. Nobody holds a place any more."""
        requests, tokens, inputs, outputs, _, weighted = _costs(
            self.num_requests,
            self.num_input_tokens,
            self.num_cached_tokens,
            self.num_image_tokens,
            self.num_output_tokens,
            weights,
        )
        return requests, tokens, inputs, outputs, 0, weighted

    def costs_at(self, weighted: int) -> Costs:
        """The same where it is known what budgets are charged, in grains."""
        requests, tokens, inputs, outputs, places, _ = self.costs(EQUAL_WEIGHTS)
        return requests, tokens, inputs, outputs, places, weighted

    def weighted_tokens(self, weights: Weights) -> float:
        """What budgets are charged."""
        return self.costs(weights)[_COLUMN[Metric.WEIGHTED_TOKENS]] / GRAINS


def _costs(
    num_requests: int,
    num_inputs: int,
    num_cached: int,
    num_images: int,
    num_outputs: int,
    weights: Weights,
) -> Costs:
    weighted_milli = (
        (num_inputs - num_cached - num_images) * weights.uncached_milli
        + num_cached * weights.cached_milli
        + num_images * weights.image_milli
        + num_outputs * weights.output_milli
    )
    return (
        num_requests * GRAINS,
        (num_inputs + num_outputs) * GRAINS,
        num_inputs * GRAINS,
        num_outputs * GRAINS,
        GRAINS,
        weighted_milli * _GRAINS_PER_THOUSANDTH,
    )


def _check_counts(num_inputs: int, num_cached: int, num_images: int, num_outputs: int) -> None:
    if num_cached < 0 or num_images < 0 or num_outputs < 0:
        raise ValueError("a number of tokens cannot be negative")
    if num_cached + num_images > num_inputs:
        raise ValueError("cached and image tokens are part of the input")


# Of a request that did not happen.
NOTHING = Spent(num_requests=0)
