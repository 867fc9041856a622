"""Limits: how much is used, how much is left, and when it resets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from accounts.alerts.quotas import read_quotas
from accounts.console.limit_forms import changeable, may_set_limits
from accounts.console.page import Page
from accounts.console.words import reset, runs_out, store_outage
from accounts.limits.rules import Rule, in_words
from accounts.limits.service import Level, current_levels, current_state, rule_of
from accounts.models import Limit
from accounts.resources.owners import owners_of
from accounts.services.access import Access


@dataclass(frozen=True, slots=True)
class Row:
    """One limit. `used` and `left` are None while they are unknown."""

    id: int
    owner: str
    what: str
    amount: int
    whole: int | None  # the whole limit, where `amount` is the share of one process
    used: int | None
    left: int | None
    reset: str
    runs_out: str  # empty: it lasts, or the user may not see it
    is_shadow: bool
    may_change: bool

    @property
    def high(self) -> int:
        """The level from which it is nearly used up."""
        return self.amount * 4 // 5


class Limits(Page):
    """`/console/limits/`."""

    name = "limits"
    template_name = "console/limits.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the limits of all visible owners."""
        rows, is_known = limit_rows(self.access)
        return super().get_context_data(**kwargs) | {
            "rows": rows,
            "is_known": is_known,
            # Read after the levels: reading those notices an outage.
            "outage": store_outage(current_state(), time.time()),
            "may_set": may_set_limits(self.access),
        }


def limit_rows(access: Access) -> tuple[list[Row], bool]:
    """Return the limits, and whether their levels are known."""
    limits = list(access.rows(Limit))
    may_change = changeable(access, limits)
    rules = list(_rules(limits))
    owners = owners_of(access, [rule.scope for rule in rules])
    levels = current_levels(rules) if rules else ()
    ends = _ends(access) if rules else {}
    by_rule: dict[int, Level] = {level.rule.id: level for level in levels or ()}
    rows = [
        _row(
            rule,
            owners[rule.scope],
            by_rule.get(rule.id),
            runs_out=ends.get(rule.id, ""),
            may_change=rule.id in may_change,
        )
        for rule in rules
    ]
    return rows, levels is not None


def _rules(limits: Iterable[Limit]) -> Iterator[Rule]:
    for limit in limits:
        # Limiters ignore an invalid row, too.
        with suppress(ValueError, KeyError):
            yield rule_of(limit)


def _ends(access: Access) -> dict[int, str]:
    """Return when quotas run out at the current rate, by the id of the limit. Used-up quotas are
    left out."""
    now = timezone.now()
    return {
        quota.limit.pk: runs_out((quota.runs_out_at - now).total_seconds())
        for quota in read_quotas(access.quotas_seen(), now)
        if quota.runs_out_at is not None and quota.num_left
    }


def _row(rule: Rule, owner: str, level: Level | None, *, runs_out: str, may_change: bool) -> Row:
    amount = rule.amount if level is None else level.rule.amount
    return Row(
        id=rule.id,
        owner=owner,
        what=in_words(rule.metric, rule.window),
        amount=amount,
        whole=rule.amount if amount != rule.amount else None,
        used=None if level is None else level.num_used,
        left=None if level is None else max(0, level.num_remaining),
        reset=reset(rule, level),
        runs_out=runs_out,
        is_shadow=rule.is_shadow,
        may_change=may_change,
    )
