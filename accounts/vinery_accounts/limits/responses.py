"""Limits in responses: OpenAI's `x-ratelimit-*` headers and refusals.

Clients depend on the exact text: openai-python waits for `retry-after-ms`, and many others read
"Please try again in 1.146s".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Final

from vinery_accounts.base.money import money
from vinery_accounts.limits.reservations import Denial, Reading, level_of
from vinery_accounts.limits.rules import Kind, Metric, Rule

HeaderLine = tuple[bytes, bytes]

_US_IN_MS: Final = 1000
_NO_RETRY: Final = {"x-should-retry": "false"}
_OWNERS: Final = {
    "key": "this API key",
    "user": "this key's user",
    "project": "this key's project",
    "end_user": "each end user of this key's project",
    "organization": "this key's organization",
    "model": "this model",
    "platform": "this server",
}


# -- Headers ------------------------------------------------------------------------------------


def headers_of(reading: Reading) -> list[HeaderLine]:
    """Return the headers of an answer. Of several rules on requests or on tokens, the headers have
    the rule with the smallest share left. A rule on a project's tokens has separate headers, too.
    Shadow rules have none."""
    fullest: dict[str, tuple[float, Rule, int]] = {}
    for rule, used in zip(reading.rules, reading.used, strict=True):
        share_used = used / rule.capacity if rule.capacity else 1.0
        for name in _header_names(rule):
            if name not in fullest or share_used > fullest[name][0]:
                fullest[name] = share_used, rule, used
    return [
        line
        for name, (_, rule, used) in fullest.items()
        for line in _lines(name, rule, used, reading.now_ms)
    ]


@lru_cache(maxsize=4096)
def _header_names(rule: Rule) -> tuple[str, ...]:
    name = rule.metric.header
    if rule.is_shadow or not name:
        return ()
    is_of_project = rule.metric.is_of_tokens and rule.scope_kind == "project"
    return (name, f"project-{name}") if is_of_project else (name,)


def _lines(name: str, rule: Rule, used: int, now_ms: int) -> Iterator[HeaderLine]:
    level = level_of(rule, used, now_ms)
    yield f"x-ratelimit-limit-{name}".encode(), b"%d" % rule.amount
    yield f"x-ratelimit-remaining-{name}".encode(), b"%d" % max(level.num_remaining, 0)
    if level.reset_s is not None:
        yield f"x-ratelimit-reset-{name}".encode(), duration(level.reset_s).encode()


def duration(seconds: float) -> str:
    """Return a duration as Go writes it: `12ms`, `1.146s`, `6m0s`, `114h18m0s`."""
    ms = _whole_us(seconds) // _US_IN_MS
    if ms < 1000:
        return f"{ms}ms" if ms > 0 else "0s"
    s, rest = divmod(ms, 1000)
    fraction = f".{rest:03}".rstrip("0") if rest else ""
    if s >= 3600:
        return f"{s // 3600}h{s // 60 % 60}m{s % 60}{fraction}s"
    return f"{s // 60}m{s % 60}{fraction}s" if s >= 60 else f"{s}{fraction}s"


# -- Refusals -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 429: the fields of OpenAI's error object (`param` is null), and its headers."""

    message: str
    type: str
    code: str
    headers: dict[str, str]


def refusal_of(denial: Denial, model: str) -> Refusal:
    rule = denial.rule
    # Another limit may have less left, but the client has to wait for this one.
    reading = denial.reading
    own = [use for each, use in zip(reading.rules, reading.used, strict=True) if each == rule]
    lines = [*headers_of(reading), *headers_of(Reading((rule,) * len(own), own, reading.now_ms))]
    headers = {name.decode(): value.decode() for name, value in lines}
    type_ = "tokens" if rule.metric.is_of_tokens else "requests"
    amount, used, needed = (
        money(each, rule.currency) if rule.metric is Metric.COST else str(each)
        for each in (rule.amount, denial.level.num_used, denial.num_needed)
    )
    numbers = f"Used {used}, Requested {needed}."
    limited = f"{_limited(rule)} of {_OWNERS[rule.scope_kind]}: Limit {amount}, "
    if denial.is_too_large:
        advice = "Shorten the input or ask for fewer output tokens."
        if rule.kind is Kind.CONCURRENCY:
            advice = "Send fewer prompts in a request, or lower `n` or `best_of`."
        message = f"Request too large for {model} on {limited}Requested {needed}. {advice}"
        return Refusal(message, type_, "rate_limit_exceeded", headers | _NO_RETRY)
    if denial.is_quota or denial.wait_s is None:
        advice = "Ask an administrator to raise it."
        if denial.wait_s is not None:
            advice = f"It resets in {duration(ceil(denial.wait_s))}."
        exceeded = f"current quota of {limited}"
        if rule.metric is Metric.COST:
            exceeded = f"budget of {amount} {rule.window.per} of {_OWNERS[rule.scope_kind]}: "
        message = f"You exceeded your {exceeded}{numbers} {advice}"
        return Refusal(message, "insufficient_quota", "insufficient_quota", headers | _NO_RETRY)
    message = (
        f"Rate limit reached for {model} on {limited}{numbers} "
        f"Please try again in {duration(denial.wait_s)}."
    )
    return Refusal(message, type_, "rate_limit_exceeded", headers | retry_after(denial.wait_s))


def retry_after(wait_s: float) -> dict[str, str]:
    """Return the headers with the time of the next attempt, rounded up: an earlier try fails."""
    us = _whole_us(wait_s)
    return {"retry-after": str(-(-us // 1_000_000)), "retry-after-ms": str(-(-us // _US_IN_MS))}


def _limited(rule: Rule) -> str:
    """Return what a rule counts, such as "tokens per min (TPM)" and "weighted tokens in total"."""
    metric, window = rule.metric, rule.window
    if rule.kind is Kind.CONCURRENCY:
        return metric.unit
    unit = f"{metric.unit} {window.per}"
    if metric.initial and window.initial:
        unit += f" ({metric.initial}P{window.initial})"
    return unit


def _whole_us(seconds: float) -> int:
    # Sums of floats miss whole milliseconds by little, and rounding up would add a whole one.
    return round(seconds * 1_000_000)
