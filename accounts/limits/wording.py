"""What clients are told about limits, in OpenAI's words: headers, durations, refusals.

Pure functions from readings and denials to plain values. Clients live by these: openai-python
waits for `retry-after-ms`, and many more read "Please try again in 1.146s".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from accounts.limits.leases import Denial, Reading, num_used, reset_s
from accounts.limits.rules import Metric, Rule, Window

_US_PER_MS = 1000

# Limits on input or output alone are tokens to a client, too. Weighted tokens are not: a
# client could not tell how many of its own they are.
_TOKENS = (Metric.TOKENS, Metric.INPUT_TOKENS, Metric.OUTPUT_TOKENS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 429: the fields of OpenAI's error object (`param` is null), and its headers."""

    message: str
    type: str
    code: str
    headers: dict[str, str]


def duration(seconds: float) -> str:
    """As Go writes durations, in whole milliseconds: `12ms`, `1.146s`, `6m0s`, `114h18m0s`."""
    ms = _whole_us(seconds) // _US_PER_MS
    if ms <= 0:
        return "0s"
    if ms < 1000:
        return f"{ms}ms"
    whole_s, rest_ms = divmod(ms, 1000)
    minutes, s = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{rest_ms:03}".rstrip("0") if rest_ms else ""
    if hours:
        return f"{hours}h{minutes}m{s}{fraction}s"
    return f"{minutes}m{s}{fraction}s" if minutes else f"{s}{fraction}s"


def headers_of(reading: Reading) -> dict[str, str]:
    """The `x-ratelimit-*` headers of an answer.

    Of several rules on requests, or on tokens, the one with the least share left is told.
    A rule on a project's tokens is told under its own names as well. Shadow rules are not.
    """
    headers: dict[str, str] = {}
    for told in _told(reading.rules):
        rule, used = _least_left(reading, told.places)
        headers[told.limit] = str(rule.amount)
        headers[told.remaining] = str(max(0, rule.amount - num_used(used)))
        wait_s = reset_s(rule, used, reading.now_ms)
        if wait_s is not None:
            headers[told.reset] = duration(wait_s)
    return headers


@dataclass(frozen=True, slots=True)
class _Told:
    """Three names of headers, and the places of the rules that may be told under them."""

    limit: str
    remaining: str
    reset: str
    places: tuple[int, ...]


# Every answer comes through here, and most callers have the same rules as a moment before.
@lru_cache(maxsize=4096)
def _told(rules: tuple[Rule, ...]) -> tuple[_Told, ...]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, rule in enumerate(rules):
        for name in _names(rule):
            places[name].append(place)
    start = "x-ratelimit"
    return tuple(
        _Told(
            f"{start}-limit-{name}", f"{start}-remaining-{name}", f"{start}-reset-{name}", tuple(of)
        )
        for name, of in places.items()
    )


def refusal_of(denial: Denial, model: str) -> Refusal:
    """What a client is told whose request to a model was denied."""
    # Another limit may have less left, but this one is what the client has to do with.
    headers = headers_of(denial.reading) | headers_of(_only(denial.rule, denial.reading))
    if denial.is_too_large:
        return Refusal(
            _too_large(denial, model),
            _type(denial.rule),
            "rate_limit_exceeded",
            headers | _NO_RETRY,
        )
    if denial.is_quota or denial.wait_s is None:
        message = _used_up(denial)
        return Refusal(message, "insufficient_quota", "insufficient_quota", headers | _NO_RETRY)
    return Refusal(
        _too_fast(denial, denial.wait_s, model),
        _type(denial.rule),
        "rate_limit_exceeded",
        headers | retry_after(denial.wait_s),
    )


def _only(rule: Rule, reading: Reading) -> Reading:
    """What is read of one rule, if it is."""
    read = zip(reading.rules, reading.used, strict=True)
    used = [used for each, used in read if each == rule]
    return Reading((rule,) * len(used), used, reading.now_ms)


def retry_after(wait_s: float) -> dict[str, str]:
    """When to come again: rounded up, because earlier would be in vain."""
    us = _whole_us(wait_s)
    return {
        "retry-after": str(-(-us // 1_000_000)),
        "retry-after-ms": str(-(-us // _US_PER_MS)),
    }


_NO_RETRY = {"x-should-retry": "false"}

_UNITS = {
    (Metric.REQUESTS, Window.MINUTE): "requests per min (RPM)",
    (Metric.REQUESTS, Window.DAY): "requests per day (RPD)",
    (Metric.REQUESTS, Window.MONTH): "requests per month",
    (Metric.REQUESTS, Window.NONE): "requests in total",
    (Metric.TOKENS, Window.MINUTE): "tokens per min (TPM)",
    (Metric.TOKENS, Window.DAY): "tokens per day (TPD)",
    (Metric.CONCURRENCY, Window.NONE): "concurrent requests",
}
_WINDOWS = {
    Window.MINUTE: "per min",
    Window.DAY: "per day",
    Window.WEEK: "per week",
    Window.MONTH: "per month",
    Window.NONE: "in total",
}
_OWNERS = {
    "key": "this API key",
    "user": "its user",
    "project": "its project",
    "organization": "its organization",
    "model": "this model",
    "platform": "this server",
}


def _too_fast(denial: Denial, wait_s: float, model: str) -> str:
    return (
        f"Rate limit reached for {model} on {_what(denial.rule)}: "
        f"Limit {denial.rule.amount}, Used {denial.level.num_used}, "
        f"Requested {denial.num_needed}. Please try again in {duration(wait_s)}."
    )


def _too_large(denial: Denial, model: str) -> str:
    return (
        f"Request too large for {model} on {_what(denial.rule)}: "
        f"Limit {denial.rule.amount}, Requested {denial.num_needed}. "
        "Shorten the input or ask for fewer output tokens."
    )


def _used_up(denial: Denial) -> str:
    told = (
        f"You exceeded your current quota of {_what(denial.rule)}: "
        f"Limit {denial.rule.amount}, Used {denial.level.num_used}, "
        f"Requested {denial.num_needed}. "
    )
    if denial.wait_s is None:
        return told + "Ask an administrator to raise it."
    return told + f"It starts anew in {duration(denial.wait_s)}."


def _what(rule: Rule) -> str:
    unit = _UNITS.get((rule.metric, rule.window))
    if unit is None:
        unit = f"{rule.metric.value.replace('_', ' ')} {_WINDOWS[rule.window]}"
    return f"{unit} of {_OWNERS[rule.scope.partition(':')[0]]}"


def _type(rule: Rule) -> str:
    return "tokens" if rule.metric.is_of_tokens else "requests"


def _names(rule: Rule) -> tuple[str, ...]:
    """Under which names a rule may be told."""
    if rule.is_shadow:
        return ()
    if rule.metric is Metric.REQUESTS:
        return ("requests",)
    if rule.metric not in _TOKENS:
        return ()
    return ("tokens", "project-tokens") if rule.scope.startswith("project:") else ("tokens",)


def _least_left(reading: Reading, places: Sequence[int]) -> tuple[Rule, int]:
    """The rule of the largest share used, and what is used of it."""
    rules, used = reading.rules, reading.used
    fullest, most = places[0], -1.0
    if len(places) > 1:
        for place in places:
            capacity = rules[place].capacity
            share_used = used[place] / capacity if capacity else 1.0
            if share_used > most:
                fullest, most = place, share_used
    return rules[fullest], used[fullest]


def _whole_us(seconds: float) -> int:
    # Sums of floats miss whole milliseconds by a hair, which would cost a whole one.
    return round(seconds * 1_000_000)
