"""Writes an alert for each quota that has reached a threshold, once in a window."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import models
from django.db.models import Q

from vinery_accounts.access.audit import organization_of
from vinery_accounts.alerts import deliveries
from vinery_accounts.alerts.quotas import Quota, read_quotas
from vinery_accounts.limits.rulebook import scope_of
from vinery_accounts.models import Alert, ApiKey, Limit, LimitScope, Project, User


def check_quotas(now: datetime, usual: Sequence[int], *, has_email: bool) -> list[Alert]:
    """Write the alerts that are due and return them. `usual` are the percentages of limits without
    their own. A quota that has passed several thresholds at once gets an alert for each, and one
    message for the highest."""
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
    return alert if deliveries.write(alert, people, now) else None


def people_for(owner: models.Model | None, organization_id: int | None) -> models.QuerySet[User]:
    """Return the receivers of e-mails: the limited users and the leaders of the organisation.
    Without a single organisation, superusers receive them instead of its leaders."""
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
