"""The usage of each quota and when it runs out, from usage records.

All processes share these; the counters of a limiter may belong to another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from accounts.alerts import forecast
from accounts.limits.recovery import read_use
from accounts.limits.rulebook import rule_of
from accounts.limits.rules import Rule
from accounts.limits.windows import quota_window
from accounts.models import Limit

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of a day, a week or a month, or a budget, with its usage."""

    limit: Limit
    num_used: int
    window_start: datetime
    resets_at: datetime | None
    runs_out_at: datetime | None

    @property
    def num_left(self) -> int:
        """The units left, at least 0."""
        return max(0, self.limit.amount - self.num_used)

    @property
    def percent(self) -> int:
        """The used part of the amount in percent, rounded down."""
        return self.num_used * 100 // self.limit.amount


def read_quotas(limits: Iterable[Limit], now: datetime) -> list[Quota]:
    """Return the quotas among the limits, in their order. Invalid limits are skipped."""
    now_s = now.timestamp()
    rules = {limit: rule for limit in limits if (rule := _rule(limit)) and rule.is_quota}
    windows = {rule: quota_window(rule, now_s) for rule in rules.values()}
    used = read_use({rule: start_ms for rule, (start_ms, _) in windows.items()})
    since_ms = {rule: _days_before(*windows[rule], now_s) for rule in windows if used[rule]}
    lately = read_use(since_ms)
    quotas = []
    for limit, rule in rules.items():
        start_ms, end_ms = windows[rule]
        num_used = used[rule]
        num_before = lately.get(rule, 0) - (num_used if end_ms else 0)
        use = forecast.Use(
            limit.amount,
            num_used,
            max(0, num_before),
            None if end_ms is None else start_ms / _MS,
            None if end_ms is None else end_ms / _MS,
        )
        runs_out_s = forecast.runs_out_at(use, now_s)
        quotas.append(
            Quota(
                limit,
                num_used,
                _moment(start_ms / _MS),
                None if end_ms is None else _moment(end_ms / _MS),
                None if runs_out_s is None else _moment(runs_out_s),
            )
        )
    return quotas


def _days_before(start_ms: int, end_ms: int | None, now_s: float) -> int:
    """Return the start (Unix ms) of the period before the window, or before now without one.

    Now is rounded to whole hours, so that quotas share their queries.
    """
    at_ms = start_ms if end_ms is not None else int(now_s // 3600 * 3600 * _MS)
    return at_ms - int(forecast.BEFORE_S * _MS)


def _rule(limit: Limit) -> Rule | None:
    try:
        return rule_of(limit)
    except (ValueError, KeyError):
        return None


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
