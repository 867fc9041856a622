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
from accounts.console.words import away, reset, runs_out
from accounts.limits.rules import Rule, in_words
from accounts.limits.service import Level, current_levels, current_state, rule_of
from accounts.models import Limit
from accounts.resources.owners import owners_of
from accounts.services.access import Access


@dataclass(frozen=True, slots=True)
class Row:
    """One limit. `used` and `left` None: not known just now."""

    id: int
    owner: str
    what: str
    amount: int
    whole: int | None  # of which the amount is the share of one of several processes
    used: int | None
    left: int | None
    reset: str
    runs_out: str  # empty where it does not, and for what one may not know
    is_shadow: bool
    may_change: bool

    @property
    def high(self) -> int:
        """From where on it is nearly used up."""
        return self.amount * 4 // 5


class Limits(Page):
    """`/console/limits/`."""

    name = "limits"
    template_name = "console/limits.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """All that bind somebody whom one may see."""
        rows, is_known = limit_rows(self.access)
        return super().get_context_data(**kwargs) | {
            "rows": rows,
            "is_known": is_known,
            # After the levels: whoever asks for them notices first.
            "away": away(current_state(), time.time()),
            "may_set": may_set_limits(self.access),
        }


def limit_rows(access: Access) -> tuple[list[Row], bool]:
    """The limits, and whether it is known how full they are."""
    limits = list(access.rows(Limit))
    may_change = changeable(access, limits)
    rules = list(_rules(limits))
    owners = owners_of(access, [rule.scope for rule in rules])
    levels = current_levels(rules) if rules else ()
    ends = _ends(access) if rules else {}
    told: dict[int, Level] = {level.rule.id: level for level in levels or ()}
    rows = [
        _row(
            rule,
            owners[rule.scope],
            told.get(rule.id),
            runs_out=ends.get(rule.id, ""),
            may_change=rule.id in may_change,
        )
        for rule in rules
    ]
    return rows, levels is not None


def _rules(limits: Iterable[Limit]) -> Iterator[Rule]:
    for limit in limits:
        # A row that was written past every form is not followed, either.
        with suppress(ValueError, KeyError):
            yield rule_of(limit)


def _ends(access: Access) -> dict[int, str]:
    """When quotas run out at the pace of late, by the limit's id. Of those that are used up
    there is nothing to foretell."""
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
