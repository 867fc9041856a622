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
# A quota without a window has the pace of so many seconds before now.
BEFORE_S: Final = 7 * DAY_S
# A shorter time or a smaller part of the amount may be one test, and no pace.
_LEAST_S: Final = 900.0
_LEAST_PART: Final = 0.1


@dataclass(frozen=True, slots=True)
class Quota:
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
    # Now is rounded to whole hours, so that quotas share their queries.
    since_ms = int(now_s // 3600 * 3600 * _MS - BEFORE_S * _MS)
    endless = [rule for rule, (_, end_ms) in windows.items() if end_ms is None and used[rule]]
    lately = read_use(dict.fromkeys(endless, since_ms))
    quotas = []
    for limit, rule in rules.items():
        start_ms, end_ms = windows[rule]
        start_s, end_s = start_ms / _MS, None if end_ms is None else end_ms / _MS
        pace = (used[rule], now_s - start_s) if end_s else (lately.get(rule, 0), BEFORE_S)
        out_s = runs_out_at(limit.amount, used[rule], *pace, now_s, end_s)
        ends = [None if at_s is None else _moment(at_s) for at_s in (end_s, out_s)]
        quotas.append(Quota(limit, used[rule], _moment(start_s), *ends))
    return quotas


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def runs_out_at(
    amount: int,
    num_used: int,
    num_lately: int,
    period_s: float,
    now_s: float,
    end_s: float | None = None,
) -> float | None:
    """Return the Unix time in seconds at which a quota runs out at the pace of the last `period_s`
    seconds; now if nothing is left. None if it lasts until its window ends at `end_s` or for more
    than a century, or if there is too little usage to forecast."""
    num_left = amount - num_used
    if num_left <= 0:
        return now_s
    if period_s < _LEAST_S or num_used < _LEAST_PART * amount or not num_lately:
        return None
    wait_s = num_left * period_s / num_lately
    if wait_s > 100 * 365 * DAY_S:
        return None
    at_s = now_s + wait_s
    return at_s if end_s is None or at_s < end_s else None


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
