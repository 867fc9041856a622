"""What the books say of quotas: how much of each was used since its window began.

A limiter that has lost its memory, as every process does with its life, begins with these.
Buckets of a minute and places are not in the books; they begin full again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from django.db.models import Count, F, Sum

from accounts.limits import calendar
from accounts.limits.leases import Floor
from accounts.limits.rules import Kind, Metric, Rule
from accounts.models import UsageRecord

_COLUMNS: Final = {
    "organization": "organization_id",
    "project": "project_id",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
}
_SUMS: Final[dict[Metric, Any]] = {
    Metric.REQUESTS: Count("id"),
    Metric.TOKENS: Sum(F("num_prompt_tokens") + F("num_output_tokens")),
    Metric.INPUT_TOKENS: Sum("num_prompt_tokens"),
    Metric.OUTPUT_TOKENS: Sum("num_output_tokens"),
    Metric.WEIGHTED_TOKENS: Sum("weighted_tokens"),
}

_Group = tuple[str, Metric, int]  # the kind of scope, what is counted, since when (Unix ms)


def read_floors(rules: Iterable[Rule], now_s: float) -> list[Floor]:
    """Of the quotas among these rules. One query for all scopes of a kind."""
    groups: defaultdict[_Group, list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.is_quota:
            groups[_kind_of(rule), rule.metric, _since_ms(rule, now_s)].append(rule)
    return [floor for group, members in groups.items() for floor in _floors_of(group, members)]


def _floors_of(group: _Group, rules: Sequence[Rule]) -> Iterable[Floor]:
    kind, metric, since_ms = group
    # What no engine took has no tokens, and was not counted.
    rows = UsageRecord.objects.filter(num_prompt_tokens__gt=0).order_by()
    if since_ms:
        rows = rows.filter(created_at__gte=datetime.fromtimestamp(since_ms / 1000, UTC))
    column = _COLUMNS.get(kind)
    if column is None:
        used = {"": rows.aggregate(used=_SUMS[metric])["used"]}
    else:
        owners = [_owner(rule) for rule in rules]
        of_owners = rows.filter(**{f"{column}__in": owners})
        totals = of_owners.values_list(column).annotate(used=_SUMS[metric])
        used = {str(owner): total for owner, total in totals}
    for rule in rules:
        num_used = ceil(used.get(_owner(rule)) or 0)
        if num_used:
            yield Floor(rule, num_used, since_ms)


def _since_ms(rule: Rule, now_s: float) -> int:
    if rule.kind is Kind.TOTAL:
        return 0
    _, start_ms, _, _ = calendar.boundaries_at(rule.window, rule.time_zone, round(now_s * 1000))
    return start_ms


def _kind_of(rule: Rule) -> str:
    return rule.scope.partition(":")[0]


def _owner(rule: Rule) -> str:
    return rule.scope.partition(":")[2]
