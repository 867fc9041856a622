"""Stores alerts with messages, and sends and retries messages that are due.

A delivery is a row. A process takes a lease by moving `due_at` forward: this succeeds for one
process only. So two processes never send one message at the same time, and a delivery of a dead
process becomes due again. A receiver may get a message twice, with the same id. Leases go by the
clock of the database: those of hosts differ.
"""

import logging
import smtplib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.core.mail import send_mail
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.webhooks import NotDelivered
from vinery_accounts.base.limit_table import Metric
from vinery_accounts.base.money import quantity
from vinery_accounts.base.querysets import delete_in_batches
from vinery_accounts.models import (
    Alert,
    Currency,
    Delivery,
    DeliveryState,
    Limit,
    Membership,
    Role,
    User,
    Webhook,
)

log = logging.getLogger(__name__)

LEASE: Final = timedelta(minutes=2)
BACKOFF: Final = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60, 4 * 60, 12 * 60))
"""The delay after each failed try. The delivery fails after almost a day."""

_AT_ONCE: Final = 200


def write(alert: Alert, people: Iterable[User] | None) -> bool:
    """Store an alert with a message to each webhook of its organisation (None: the platform) and to
    these people; `people` None: without messages. Several processes may check at the same time. A
    unique constraint lets only the first process write; the others get False."""
    try:
        with transaction.atomic():
            alert.save(force_insert=True)
            if people is not None:
                hooks = Webhook.objects.filter(
                    Q(organization_id=alert.organization_id), is_active=True
                )
                Delivery.objects.bulk_create(
                    [
                        *(Delivery(alert=alert, webhook=hook, due_at=Now()) for hook in hooks),
                        *(Delivery(alert=alert, user=user, due_at=Now()) for user in people),
                    ]
                )
    except IntegrityError:
        return False
    return True


def response_ended(project_id: int | None, public_id: str, status: str) -> None:
    """Schedule `response.completed`, `failed`, `incomplete` or `cancelled` for each webhook of the
    project's organisation that gets the ends of background responses. Clients without keys have the
    webhooks of the platform. In the transaction of the end."""
    whose = Q(organization=None) if project_id is None else Q(organization__projects=project_id)
    hooks = Webhook.objects.filter(whose, is_active=True, gets_responses=True)
    event = webhooks.response_event(public_id, status, timezone.now())
    Delivery.objects.bulk_create(
        Delivery(webhook=webhook, event=event, due_at=Now()) for webhook in hooks
    )


def reachable() -> QuerySet[User]:
    return User.objects.filter(is_active=True).exclude(email="")


def lead(scope: Q) -> Q:
    leading = Membership.objects.filter(scope, role__in=(Role.OWNER, Role.ADMIN)).order_by()
    return Q(pk__in=leading.values("user_id"))


def _due() -> QuerySet[Delivery]:
    return Delivery.objects.filter(state=DeliveryState.PENDING, due_at__lte=Now())


def due_ids() -> list[int]:
    return list(_due().order_by("due_at").values_list("pk", flat=True)[:_AT_ONCE])


def deliver(delivery_id: int) -> DeliveryState | None:
    """Send a delivery that is due. Returns the new state, or None if the delivery is not due or
    another process sends it."""
    lease = {"due_at": Now() + LEASE, "num_tries": F("num_tries") + 1}
    if not _due().filter(pk=delivery_id).update(**lease):
        return None
    whole = Delivery.objects.select_related("alert", "webhook", "user")
    delivery = whole.get(pk=delivery_id)
    if delivery.num_tries > len(BACKOFF) + 1:
        return _failed(delivery, "Each process that tried to send it died.")
    try:
        _send(delivery)
    except NotDelivered as failure:
        return _failed(delivery, str(failure))
    return _end(delivery, DeliveryState.SENT, sent_at=Now(), error="")


def _send(delivery: Delivery) -> None:
    alert, webhook, user = delivery.alert, delivery.webhook, delivery.user
    if webhook is not None:
        if not webhook.is_active:
            raise NotDelivered("The webhook is not active.")
        event: Any = delivery.event if alert is None else webhooks.event_of(alert)
        webhooks.send(webhook, event)
    elif user is not None and alert is not None:
        if not user.is_active or not user.email:
            raise NotDelivered("The user is not active or has no e-mail address.")
        try:
            send_mail(*mail_of(alert), settings.DEFAULT_FROM_EMAIL, [user.email])
        except (OSError, smtplib.SMTPException) as error:
            raise NotDelivered(f"The mail server: {type(error).__name__}.") from None


def _failed(delivery: Delivery, error: str) -> DeliveryState:
    log.warning("delivery %s to %s: %s", delivery.pk, delivery.receiver, error)
    if delivery.num_tries > len(BACKOFF):
        return _end(delivery, DeliveryState.FAILED, error=error[:300])
    due_at = Now() + BACKOFF[delivery.num_tries - 1]
    return _end(delivery, DeliveryState.PENDING, due_at=due_at, error=error[:300])


def _end(delivery: Delivery, state: DeliveryState, **values: object) -> DeliveryState:
    """Store the result, unless the lease has expired and another process has taken it."""
    ours = Delivery.objects.filter(
        pk=delivery.pk, state=DeliveryState.PENDING, num_tries=delivery.num_tries
    )
    ours.update(state=state, **values)
    return state


def retry_failed(webhook: Webhook) -> int:
    failed = Delivery.objects.filter(webhook=webhook, state=DeliveryState.FAILED)
    return failed.update(state=DeliveryState.PENDING, due_at=Now(), num_tries=0, error="")


def delete_before(moment: datetime) -> int:
    """Delete alerts and other messages from before `moment`, and return the number of alerts. An
    alert stays while its window lasts: the row prevents a second message."""
    others = Delivery.objects.filter(alert=None, due_at__lt=moment)
    delete_in_batches(others.exclude(state=DeliveryState.PENDING).order_by("due_at"))
    limit = Limit.objects.filter(pk=OuterRef("limit_id"))
    over = Q(resets_at__lt=moment) | (Q(resets_at=None) & ~Exists(limit))
    alerts = Alert.objects.filter(over, created_at__lt=moment)
    return delete_in_batches(alerts.order_by("created_at"))


# -- E-mails ------------------------------------------------------------------------------------


def mail_of(alert: Alert) -> tuple[str, str]:
    kind = alert.scope.partition(":")[0]
    scope = {"platform": "the platform", "organization": "organisation"}.get(kind, kind)
    whose = " ".join(f"{scope} {alert.whose}".split())
    metric = Metric(alert.metric).label
    subject = f"{alert.percent} % of {whose}'s {metric} are used"
    since = f", counted since {_time(alert.window_start)}" if alert.resets_at else ""
    code = Currency.current() if alert.metric == Metric.COST else ""
    used, amount = (quantity(alert.metric, each, code) for each in (alert.num_used, alert.amount))
    counted = "" if alert.metric == Metric.COST else f" {metric}"
    lines = [f"{used} of {amount}{counted} are used by {whose}{since}."]
    if alert.num_used >= alert.amount:
        lines.append(
            "This is a shadow limit: it refuses nothing."
            if alert.is_shadow
            else "Requests under this limit are refused now."
        )
    elif alert.runs_out_at:
        lines.append(f"At this pace the quota may be used up at {_time(alert.runs_out_at)}.")
    else:
        lines.append("At this pace the quota lasts.")
    if alert.resets_at:
        lines.append(f"It resets at {_time(alert.resets_at)}.")
    return subject[:200], "\n\n".join(lines) + "\n"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
