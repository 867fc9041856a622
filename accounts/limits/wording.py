"""What clients are told when a limit refuses them, in OpenAI's words.

Pure functions from denials to plain values. Clients live by these: openai-python
waits for `retry-after-ms`, and many more read "Please try again in 1.146s".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accounts.limits.headers import Line, go_duration, lines_of, lines_of_one
from accounts.limits.leases import Denial, Reading
from accounts.limits.rules import Metric, Rule, Window

_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 429: the fields of OpenAI's error object (`param` is null), and its headers."""

    message: str
    type: str
    code: str
    headers: dict[str, str]


def duration(seconds: float) -> str:
    """In whole milliseconds, as Go writes it."""
    return go_duration(_whole_us(seconds) // _US_PER_MS)


def headers_of(reading: Reading) -> dict[str, str]:
    """The same lines as text: a refusal tells more."""
    return _text(lines_of(reading))


def refusal_of(denial: Denial, model: str) -> Refusal:
    """What a client is told whose request to a model was denied."""
    # Another limit may have less left, but this one is what the client has to do with.
    headers = headers_of(denial.reading) | _text(lines_of_one(denial.rule, denial.reading))
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


def _text(lines: Iterable[Line]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in lines}


def _whole_us(seconds: float) -> int:
    # Sums of floats miss whole milliseconds by a hair, which would cost a whole one.
    return round(seconds * 1_000_000)
