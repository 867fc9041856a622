"""The usage of each quota, from usage records, and when it runs out at the current pace.

All processes share usage records; the counters of a limiter may belong to another process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db import models
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.access.audit import organization_of
from vinery_accounts.alerts import deliveries
from vinery_accounts.limits.recovery import read_use
from vinery_accounts.limits.rulebook import scope_of, valid_rules
from vinery_accounts.limits.windows import quota_window
from vinery_accounts.models import Alert, ApiKey, Limit, LimitScope, Project, User

_MS: Final = 1000
DAY_S: Final = 86_400.0
BEFORE_S: Final = 7 * DAY_S
"""The length of the period before the window that counts for the pace, in seconds."""

# The period before the window counts as this part of a window. Early in a window, that period
# outweighs the few requests so far; later it hardly counts.
_WEIGHT: Final = 0.125
# A shorter time or a smaller part of the amount may be one test, and no pace.
_LEAST_S: Final = 900.0
_LEAST_PART: Final = 0.1


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of a quota. Times are Unix times in seconds. `end_s` is None without a window.
    `num_before` is the usage in the `BEFORE_S` before the window, or before now without a
    window."""

    amount: int
    num_used: int
    num_before: int = 0
    start_s: float = 0.0
    end_s: float | None = None


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
        return max(0, self.limit.amount - self.num_used)

    @property
    def percent(self) -> int:
        return self.num_used * 100 // self.limit.amount


def read_quotas(limits: Iterable[Limit], now: datetime) -> list[Quota]:
    now_s = now.timestamp()
    rules = {limit: rule for limit, rule in valid_rules(limits).items() if rule.is_quota}
    windows = {rule: quota_window(rule, now_s) for rule in rules.values()}
    used = read_use({rule: start_ms for rule, (start_ms, _) in windows.items()})
    since_ms = {rule: _days_before(*windows[rule], now_s) for rule in windows if used[rule]}
    lately = read_use(since_ms)
    quotas = []
    for limit, rule in rules.items():
        start_ms, end_ms = windows[rule]
        num_used = used[rule]
        num_before = lately.get(rule, 0) - (num_used if end_ms else 0)
        start_s, end_s = start_ms / _MS, None if end_ms is None else end_ms / _MS
        use = Use(limit.amount, num_used, max(0, num_before), start_s, end_s)
        ends = [
            None if at_s is None else _moment(at_s) for at_s in (end_s, runs_out_at(use, now_s))
        ]
        quotas.append(Quota(limit, num_used, _moment(start_s), *ends))
    return quotas


def _days_before(start_ms: int, end_ms: int | None, now_s: float) -> int:
    """Return the start (Unix ms) of the period before the window, or before now without one. Now is
    rounded to whole hours, so that quotas share their queries."""
    at_ms = start_ms if end_ms is not None else int(now_s // 3600 * 3600 * _MS)
    return at_ms - int(BEFORE_S * _MS)


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def runs_out_at(use: Use, now_s: float) -> float | None:
    """Return the Unix time in seconds at which the quota runs out.

    Returns now if nothing is left, and None if the quota lasts until its window ends or for more
    than a century, or if there is too little usage to forecast. The forecast is linear. The pace is
    a mean of the window so far and the period before. That period counts as an eighth of a window.
    Without usage before the window, only the window counts.
    """
    num_left = use.amount - use.num_used
    if num_left <= 0:
        return now_s
    is_known = use.end_s is None or use.num_before or now_s - use.start_s >= _LEAST_S
    if not is_known or use.num_used < _LEAST_PART * use.amount:
        return None
    pace = _pace(use, now_s)
    if pace <= 0 or num_left / pace > 100 * 365 * DAY_S:
        return None
    at_s = now_s + num_left / pace
    return at_s if use.end_s is None or at_s < use.end_s else None


def _pace(use: Use, now_s: float) -> float:
    pace_before = use.num_before / BEFORE_S
    if use.end_s is None:
        return pace_before
    weight_s = _WEIGHT * (use.end_s - use.start_s) if use.num_before else 0.0
    # The pace of the first minute is not representative.
    elapsed_s = max(now_s - use.start_s, 60.0)
    return (use.num_used + pace_before * weight_s) / (elapsed_s + weight_s)


# -- Alerts of thresholds, once in a window


def num_open(alerts: models.QuerySet[Alert], now: datetime) -> int:
    """Return the number of limits with an alert in this window, and not changed since."""
    unchanged = Limit.objects.filter(pk=OuterRef("limit_id"), amount=OuterRef("amount"))
    lasting = alerts.filter(Q(resets_at=None) | Q(resets_at__gt=now), Exists(unchanged))
    return lasting.order_by().values("limit_id").distinct().count()


def check_quotas(now: datetime, usual: Sequence[int], *, has_email: bool) -> list[Alert]:
    """Write the alerts that are due and return them. `usual` are the percentages for limits that
    name none. A quota that has passed several thresholds at once gets an alert for each threshold,
    and a message for the highest."""
    limits = list(Limit.objects.exclude(scope=LimitScope.END_USER))
    wanted = {
        limit.pk: usual if limit.alert_at is None else list(limit.alert_at) for limit in limits
    }
    found = read_quotas([limit for limit in limits if wanted[limit.pk]], now)
    quotas = [quota for quota in found if quota.num_used]
    # There are few windows: days, weeks and months in a few time zones.
    known = Alert.objects.filter(window_start__in={quota.window_start for quota in quotas})
    existing = set(known.order_by().values_list("limit_id", "window_start", "percent"))
    alerts = []
    for quota in quotas:
        limit = quota.limit
        reached = [percent for percent in wanted[limit.pk] if quota.percent >= percent]
        # The highest first: if the process dies in between, the lower ones need no message.
        for percent in reversed(reached):
            if (limit.pk, quota.window_start, percent) in existing:
                continue
            alert = _write(quota, percent, now, is_sent=percent == reached[-1], mail=has_email)
            if alert is not None:
                alerts.append(alert)
    return alerts


def _write(quota: Quota, percent: int, now: datetime, *, is_sent: bool, mail: bool) -> Alert | None:
    limit = quota.limit
    owner = limit.owner()
    alert = Alert(
        limit_id=limit.pk,
        organization_id=None if owner is None else organization_of(owner),
        scope=scope_of(limit),
        whose=limit.model or ("" if owner is None else str(owner)),
        metric=limit.metric,
        window=limit.window,
        amount=limit.amount,
        is_shadow=limit.is_shadow,
        percent=percent,
        num_used=quota.num_used,
        window_start=quota.window_start,
        resets_at=quota.resets_at,
        runs_out_at=quota.runs_out_at,
        created_at=now,
    )
    people: Iterable[User] | None = None
    if is_sent:
        people = people_for(owner, alert.organization_id) if mail else ()
    return alert if deliveries.write(alert, people) else None


def people_for(owner: models.Model | None, organization_id: int | None) -> models.QuerySet[User]:
    """Return the receivers of e-mails: the limited users and the leaders of the organisation.
    Without a single organisation: the limited users and superusers."""
    leaders = (
        Q(is_superuser=True)
        if organization_id is None
        else deliveries.lead(Q(organization_id=organization_id, project=None))
    )
    return deliveries.reachable().filter(_bound_by(owner) | leaders)


def _bound_by(owner: models.Model | None) -> Q:
    match owner:
        case ApiKey():
            holder = Q(pk=owner.owner_id, is_service=False)
            return holder | deliveries.lead(Q(project_id=owner.project_id))
        case User():
            return Q(pk=owner.pk, is_service=False)
        case Project():
            return deliveries.lead(Q(project_id=owner.pk))
    return Q(pk__in=())
