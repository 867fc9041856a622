"""The one table of the metrics and windows of limits.

Models, forms, the API, commands, headers and messages read it. To add a window, add a member to
`Window` and run `makemigrations`.
"""

from enum import IntEnum, StrEnum
from typing import Final, Self

# Limiters count in fixed-point units: one request, token or running request is so many of them.
# A bucket refills `amount` units in each tick, which is this part of its window, and a token
# weight in thousandths is a whole number of units. So all arithmetic is exact, also in Lua,
# whose numbers are doubles.
SCALE: Final = 60_000
# Prices have steps of 0.001, so a cost is a whole number of thousandths of a millionth.
COST_SCALE: Final = 1000

# In fixed-point units this is 6e15, less than 2**53, up to which doubles hold all whole numbers.
MAX_AMOUNT: Final = 100_000_000_000
MAX_COST: Final = 9_000_000_000_000  # so are these millionths of the currency

# With it 1.5 million tokens still count for less than 2**53 fixed-point units.
MAX_WEIGHT: Final = 100_000

_MINUTE_MS: Final = 60_000


class Kind(IntEnum):
    """How the use of a rule is counted. The Lua scripts have the same numbers."""

    BUCKET = 0  # refills all the time
    CALENDAR = 1  # resets at midnight, at the start of a week or of a month
    TOTAL = 2  # never resets
    CONCURRENCY = 3  # is held while a request runs, by each of its answers


class Metric(StrEnum):
    _value_: str
    label: str  # in forms and pages
    unit: str  # in messages to clients
    initial: str  # of its abbreviations, such as RPM; empty: it has none
    header: str  # in `x-ratelimit-limit-<header>`; empty: clients do not receive it

    # The defaults are for type checkers: `Metric(name)` returns the metric of a name.
    def __new__(
        cls, name: str, label: str = "", unit: str = "", initial: str = "", header: str = ""
    ) -> Self:
        metric = str.__new__(cls, name)
        metric._value_ = name
        metric.label, metric.unit = label, unit
        metric.initial, metric.header = initial, header
        return metric

    REQUESTS = "requests", "requests", "requests", "R", "requests"
    TOKENS = "tokens", "tokens", "tokens", "T", "tokens"
    # Limits on input or output alone are limits on tokens to a client, too.
    INPUT_TOKENS = "input_tokens", "input tokens", "input tokens", "", "tokens"
    OUTPUT_TOKENS = "output_tokens", "output tokens", "output tokens", "", "tokens"
    CONCURRENCY = "concurrency", "concurrent answers", "concurrent answers", "", ""
    # A client cannot know how many weighted tokens its own tokens are.
    WEIGHTED_TOKENS = "weighted_tokens", "weighted tokens", "weighted tokens", "", ""
    # In millionths of the currency: a model's weight is its price for a million tokens.
    COST = "cost", "cost", "cost", "", ""

    @property
    def scale(self) -> int:
        return COST_SCALE if self is Metric.COST else SCALE

    @property
    def max_amount(self) -> int:
        return MAX_COST if self is Metric.COST else MAX_AMOUNT

    @property
    def is_of_tokens(self) -> bool:
        return self not in (Metric.REQUESTS, Metric.CONCURRENCY)

    @property
    def is_reserved_ahead(self) -> bool:
        """Whether requests reserve more than they may use. The length of a prompt is known before
        the request runs, the length of an answer is not."""
        return self.is_of_tokens and self is not Metric.INPUT_TOKENS


class Window(StrEnum):
    _value_: str
    kind: Kind
    label: str  # in forms and pages
    per: str  # in messages to clients
    initial: str  # of abbreviations, such as RPM; empty: it has none
    period_ms: int  # in which a bucket refills; 0 for other kinds

    # The defaults are for type checkers, as those of `Metric`.
    def __new__(
        cls,
        name: str,
        kind: Kind = Kind.TOTAL,
        label: str = "",
        per: str = "",
        initial: str = "",
        period_ms: int = 0,
    ) -> Self:
        window = str.__new__(cls, name)
        window._value_ = name
        window.kind, window.label, window.per = kind, label, per
        window.initial, window.period_ms = initial, period_ms
        return window

    MINUTE = "minute", Kind.BUCKET, "per minute", "per min", "M", _MINUTE_MS
    HOUR = "hour", Kind.BUCKET, "per hour", "per hour", "H", 60 * _MINUTE_MS
    DAY = "day", Kind.CALENDAR, "per day", "per day", "D"
    WEEK = "week", Kind.CALENDAR, "per week", "per week", ""
    MONTH = "month", Kind.CALENDAR, "per month", "per month", ""
    NONE = "none", Kind.TOTAL, "no window", "in total", ""


# The first day of a week, in the order of `date.weekday`.
Weekday = StrEnum("Weekday", "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY")


METRIC_CHOICES: Final = [(metric.value, metric.label) for metric in Metric]
WINDOW_CHOICES: Final = [(window.value, window.label) for window in Window]
WEEKDAY_CHOICES: Final = [(day.value, day.value.capitalize()) for day in Weekday]

CALENDAR_WINDOWS: Final = tuple(each for each in Window if each.kind is Kind.CALENDAR)


def in_words(metric: str, window: str) -> str:
    """A limit in words, such as "requests per minute", "concurrent answers" and "tokens in total".
    An unknown metric stays as it is."""
    unit = Metric(metric).label if metric in set(Metric) else metric
    if metric == Metric.CONCURRENCY:
        return unit
    return f"{unit} in total" if window == Window.NONE else f"{unit} per {window}"
