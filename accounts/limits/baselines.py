"""What the books say of limits: how much of each quota was used since its window began, and
how full each bucket must be about now.

A limiter that has lost its memory, as every process does with its life, begins with these.
Places are not in the books: nobody holds one of a process that is dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from accounts.limits import buckets, calendar
from accounts.limits.leases import Floor, num_used
from accounts.limits.rotation_chain import heirs_of
from accounts.limits.rules import GRAINS, Kind, Metric, Rule
from accounts.usage.used import Use, each_since, used_since

_COLUMNS: Final = {
    "organization": "organization_id",
    "project": "project_id",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
}
_KEY: Final = "key"
_NOTHING: Final = Use()
_PLATFORM: Final = "platform"
# How far back requests are read for buckets. How full one was then nobody knows, so it is taken
# to have been used up. Once it must have been full since, that is forgotten: it matters only to
# whoever has used more than four fifths of it all the time.
_BUCKETS_SINCE_MS: Final = 5 * buckets.MINUTE_MS

_Group = tuple[str, int]  # the kind of scope, since when (Unix ms)


def read_floors(rules: Iterable[Rule], now_s: float) -> list[Floor]:
    """Of the quotas among these rules, without those of which nothing is used."""
    since_ms = {rule: window_of(rule, now_s)[0] for rule in rules if rule.is_quota}
    used = read_use(since_ms)
    return [Floor(rule, used[rule], since_ms[rule]) for rule in since_ms if used[rule]]


def read_bucket_floors(rules: Iterable[Rule], now_s: float) -> list[Floor]:
    """Of the buckets among these rules, without those that are full. Each request counts as a
    whole when it came, though the limiter has counted its answer while it was made."""
    now_ms = round(now_s * 1000)
    found = [rule for rule in rules if rule.kind is Kind.BUCKET]
    floors = (
        Floor(rule, num_used(buckets.used_after(used, rule.amount, now_ms - at_ms)), now_ms)
        for rule, (used, at_ms) in _used_of_buckets(found, now_ms - _BUCKETS_SINCE_MS).items()
    )
    return [floor for floor in floors if floor.num_used]


def _used_of_buckets(rules: Iterable[Rule], since_ms: int) -> dict[Rule, tuple[int, int]]:
    """Grains, and when that was (Unix ms): when the last request came that it counted."""
    found = {rule: (rule.capacity, since_ms) for rule in rules}
    if not found:
        return {}
    rules_of: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in found:
        rules_of[rule.scope].append(rule)
    scopes = dict(rules_of)
    for old, heirs in heirs_of(_keys_of(found)).items():
        bound_by = (f"{_KEY}:{each}" for each in (old, *heirs))
        scopes[f"{_KEY}:{old}"] = [rule for scope in bound_by for rule in rules_of[scope]]
    for at_ms, owners, use in each_since(since_ms, tuple(_COLUMNS.values())):
        named = (f"{kind}:{owner}" for kind, owner in zip(_COLUMNS, owners, strict=True))
        for scope in (_PLATFORM, *named):
            for rule in scopes.get(scope, ()):
                used, before_ms = found[rule]
                left = buckets.used_after(used, rule.amount, at_ms - before_ms)
                found[rule] = min(rule.capacity, left + _grains(rule.metric, use)), at_ms
    return found


def read_use(since_ms: Mapping[Rule, int]) -> dict[Rule, int]:
    """What each rule counts, since a moment of its own. A few queries for all scopes of a kind
    that have the same one."""
    groups: defaultdict[_Group, list[Rule]] = defaultdict(list)
    for rule, at_ms in since_ms.items():
        groups[_kind_of(rule), at_ms].append(rule)
    found: dict[Rule, int] = {}
    for (kind, at_ms), rules in groups.items():
        owners = {_owner(rule) for rule in rules}
        heirs = heirs_of(_keys_of(rules)) if kind == _KEY else {}
        own = used_since(at_ms, _COLUMNS.get(kind), {*owners, *map(str, heirs)})
        used = dict(own)
        for old, news in heirs.items():
            for new in map(str, news):
                used[new] = used.get(new, _NOTHING) + own.get(str(old), _NOTHING)
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


def _grains(metric: Metric, used: Use) -> int:
    if metric is Metric.WEIGHTED_TOKENS:
        return round(used.weighted_tokens * GRAINS)
    return _amount(metric, used) * GRAINS


def _keys_of(rules: Iterable[Rule]) -> set[int]:
    return {int(_owner(rule)) for rule in rules if _kind_of(rule) == _KEY}


def _kind_of(rule: Rule) -> str:
    return rule.scope.partition(":")[0]


def _owner(rule: Rule) -> str:
    return rule.scope.partition(":")[2]
