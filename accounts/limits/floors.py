"""What the books say of quotas: how much of each was used since its window began.

A limiter that has lost its memory, as every process does with its life, begins with these.
Buckets of a minute and places are not in the books; they begin full again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from accounts.limits import calendar
from accounts.limits.leases import Floor
from accounts.limits.rules import Kind, Metric, Rule
from accounts.usage.used import Use, used_since

_COLUMNS: Final = {
    "organization": "organization_id",
    "project": "project_id",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
}
_NOTHING: Final = Use()

_Group = tuple[str, int]  # the kind of scope, since when (Unix ms)


def read_floors(rules: Iterable[Rule], now_s: float) -> list[Floor]:
    """Of the quotas among these rules, without those of which nothing is used."""
    since_ms = {rule: window_of(rule, now_s)[0] for rule in rules if rule.is_quota}
    used = read_use(since_ms)
    return [Floor(rule, used[rule], since_ms[rule]) for rule in since_ms if used[rule]]


def read_use(since_ms: Mapping[Rule, int]) -> dict[Rule, int]:
    """What each rule counts, since a moment of its own. A few queries for all scopes of a kind
    that have the same one."""
    groups: defaultdict[_Group, list[Rule]] = defaultdict(list)
    for rule, at_ms in since_ms.items():
        groups[_kind_of(rule), at_ms].append(rule)
    found: dict[Rule, int] = {}
    for (kind, at_ms), rules in groups.items():
        used = used_since(at_ms, _COLUMNS.get(kind), {_owner(rule) for rule in rules})
        found |= {rule: _amount(rule.metric, used.get(_owner(rule), _NOTHING)) for rule in rules}
    return found


def window_of(rule: Rule, now_s: float) -> tuple[int, int | None]:
    """When the window of a quota began and when it ends, as Unix times in ms. What is for ever
    began with 0 and has no end."""
    if rule.kind is Kind.TOTAL:
        return 0, None
    _, start_ms, end_ms, _ = calendar.boundaries_at(rule, round(now_s * 1000))
    return start_ms, end_ms


def _amount(metric: Metric, used: Use) -> int:
    match metric:
        case Metric.REQUESTS:
            return used.num_requests
        case Metric.TOKENS:
            return used.num_tokens
        case Metric.INPUT_TOKENS:
            return used.num_input_tokens
        case Metric.OUTPUT_TOKENS:
            return used.num_output_tokens
        case _:
            # Fractions add up a little differently in another order.
            return ceil(round(used.weighted_tokens, 6))


def _kind_of(rule: Rule) -> str:
    return rule.scope.partition(":")[0]


def _owner(rule: Rule) -> str:
    return rule.scope.partition(":")[2]
