"""Limits and quotas: how much is used, how much is left, and when it resets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from django.utils import timezone

from accounts.alerts.quotas import Quota, read_quotas
from accounts.console.limit_forms import changeable, may_set_limits
from accounts.console.page import Page
from accounts.console.words import reset, runs_out, store_outage
from accounts.limits.rules import Rule, in_words
from accounts.limits.service import Level, current_levels, current_state, rule_of
from accounts.models import Limit
from accounts.resources.owners import owners_of
from accounts.services.access import Access

_MAX_QUOTAS: Final = 5
# At most so many of those that run out; the others are the fullest of the rest.
_MAX_ENDING: Final = 3
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


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


def limit_rows(access: Access) -> tuple[list[dict[str, Any]], bool]:
    """Return the limits, and whether their levels are known."""
    limits = list(access.rows(Limit))
    may_change = changeable(access, limits)
    rules = list(_rules(limits))
    owners = owners_of(access, [rule.scope for rule in rules])
    levels = current_levels(rules) if rules else ()
    ends = _ends(access) if rules else {}
    by_rule = {level.rule.id: level for level in levels or ()}
    rows = [
        _row(rule, by_rule.get(rule.id))
        | {
            "owner": owners[rule.scope],
            "runs_out": ends.get(rule.id, ""),
            "may_change": rule.id in may_change,
        }
        for rule in rules
    ]
    return rows, levels is not None


def _rules(limits: Iterable[Limit]) -> Iterator[Rule]:
    for limit in limits:
        # Limiters ignore an invalid row, too.
        with suppress(ValueError, KeyError):
            yield rule_of(limit)


def _row(rule: Rule, level: Level | None) -> dict[str, Any]:
    """Return what the page shows of a limit. `whole` is its amount where `amount` is only the
    share of one process; `used` and `left` are None while they are unknown."""
    amount = rule.amount if level is None else level.rule.amount
    return {
        "id": rule.id,
        "what": in_words(rule.metric, rule.window),
        "amount": amount,
        "high": _high(amount),
        "whole": rule.amount if amount != rule.amount else None,
        "used": None if level is None else level.num_used,
        "left": None if level is None else max(0, level.num_remaining),
        "reset": reset(rule, level),
        "is_shadow": rule.is_shadow,
    }


def _high(amount: int) -> int:
    """Return the level from which a limit is nearly used up."""
    return amount * 4 // 5


def _ends(access: Access) -> dict[int, str]:
    """Return when quotas run out at the current rate, by the id of the limit. Used-up quotas are
    left out."""
    now = timezone.now()
    return {
        quota.limit.pk: runs_out((quota.runs_out_at - now).total_seconds())
        for quota in read_quotas(access.quotas_seen(), now)
        if quota.runs_out_at is not None and quota.num_left
    }


# -- Quotas on the overview


def quota_rows(access: Access, now: datetime) -> list[dict[str, Any]]:
    """Return the quotas that run out first, then the fullest. Unused quotas are left out."""
    quotas = closest(read_quotas(access.quotas_seen(), now))
    scopes = [rule_of(quota.limit).scope for quota in quotas]
    owners = owners_of(access, scopes)
    return [
        {
            "owner": owners[scope],
            "what": in_words(quota.limit.metric, quota.limit.window),
            "quota": quota,
            "high": _high(quota.limit.amount),
        }
        for scope, quota in zip(scopes, quotas, strict=True)
    ]


def closest(quotas: list[Quota]) -> list[Quota]:
    """Return the few quotas that the page shows."""
    used = sorted(
        (quota for quota in quotas if quota.num_used),
        key=lambda quota: (quota.runs_out_at or _NEVER, -quota.percent),
    )
    ending = [quota for quota in used if quota.runs_out_at is not None][:_MAX_ENDING]
    others = sorted(used, key=lambda quota: -quota.percent)
    fullest = [quota for quota in others if quota not in ending]
    return [*ending, *fullest[: _MAX_QUOTAS - len(ending)]]
