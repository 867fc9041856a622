"""Writes reminders for keys that expire soon or whose rotation is due soon."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from vinery_accounts.alerts import deliveries
from vinery_accounts.alerts.moments import active_keys, dates_of
from vinery_accounts.models import ApiKey, KeyEvent, KeyReminder, User


def check_keys(now: datetime, days: Sequence[int], *, has_email: bool) -> list[KeyReminder]:
    """Write the reminders that are due and return them.

    `days` are the numbers of days before a date at which a reminder is sent; of several that
    have passed, the smallest. A key that was created for a shorter time gets no reminder.
    """
    if not days:
        return []
    latest = now + timedelta(days=max(days))
    ends = Q(expires_at__gt=now, expires_at__lte=latest)
    keys = active_keys().filter(ends | Q(rotate_every_days__isnull=False))
    due = [
        (key, event, moment, lead)
        for key in keys.select_related("owner", "project__organization")
        for event, moment in dates_of(key).items()
        if (lead := lead_of(key, moment, days, now)) is not None
    ]
    known = KeyReminder.objects.filter(key_id__in=keys.order_by().values("pk")).order_by()
    existing = set(known.values_list("key_id", "event", "happens_at", "days_before"))
    return [
        reminder
        for key, event, moment, lead in due
        if (key.pk, event.value, moment, lead) not in existing
        and (reminder := _write(key, event, moment, lead, now, mail=has_email)) is not None
    ]


def lead_of(key: ApiKey, moment: datetime, days: Sequence[int], now: datetime) -> int | None:
    """Return the number of days before the date for which a reminder is due, or None."""
    reached = [each for each in days if now < moment <= now + timedelta(days=each)]
    if not reached or moment - key.created_at <= timedelta(days=min(reached)):
        return None
    return min(reached)


def _write(
    key: ApiKey, event: KeyEvent, moment: datetime, lead: int, now: datetime, *, mail: bool
) -> KeyReminder | None:
    """Write a reminder and its messages. Returns None if another process was faster."""
    reminder = KeyReminder(
        key_id=key.pk,
        organization_id=key.project.organization_id,
        event=event,
        happens_at=moment,
        days_before=lead,
        key_name=key.name,
        hint=key.hint,
        owner_name=key.owner.username,
        project_name=str(key.project),
        created_at=now,
    )
    people = people_for(key) if mail else ()
    return reminder if deliveries.write(reminder, people, now) else None


def people_for(key: ApiKey) -> QuerySet[User]:
    """Return the receivers of e-mails: the owner of the key.

    For a service account, or an owner without an address: the admins and owners of the project
    and its organisation.
    """
    reachable = deliveries.reachable()
    if not key.owner.is_service and key.owner.email:
        return reachable.filter(pk=key.owner_id)
    of_organization = Q(project=None, organization_id=key.project.organization_id)
    return reachable.filter(deliveries.lead(Q(project_id=key.project_id) | of_organization))
