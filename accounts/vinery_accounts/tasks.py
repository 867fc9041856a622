"""Periodic tasks of accounts. Each calls one function."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from celery import shared_task
from django.conf import settings
from django.contrib.sessions.models import Session

from vinery_accounts import mailed_views
from vinery_accounts.alerts import deliveries, quotas
from vinery_accounts.limits.recovery import settle_dead_leases
from vinery_accounts.models import Capture, QuarantinedRequest
from vinery_accounts.stored import care
from vinery_accounts.usage import upkeep
from vinery_accounts.usage.recovery import recover_orphans, store_then


@shared_task(name="vinery_accounts.tasks.recover_usage")
def recover_usage() -> None:
    recover_orphans(Path(settings.VINERY_USAGE_DIR), store_then(settle_dead_leases))


@shared_task(name="vinery_accounts.tasks.delete_old_usage")
def delete_old_usage() -> None:
    upkeep.delete_old(settings.VINERY_RETENTION_DAYS, datetime.now(UTC))


@shared_task(name="vinery_accounts.tasks.write_spans")
def write_spans() -> None:
    upkeep.write_spans(datetime.now(UTC))


@shared_task(name="vinery_accounts.tasks.delete_old_captures")
def delete_old_captures() -> None:
    Capture.stored.delete_expired(datetime.now(UTC))


@shared_task(name="vinery_accounts.tasks.sweep_stored")
def sweep_stored() -> None:
    """Also what an owner had who was removed, or keeps nothing any more."""
    care.sweep(datetime.now(UTC))


@shared_task(name="vinery_accounts.tasks.delete_old_quarantine")
def delete_old_quarantine() -> None:
    QuarantinedRequest.stored.delete_expired(datetime.now(UTC))


@shared_task(name="vinery_accounts.tasks.delete_old_alerts")
def delete_old_alerts() -> None:
    if days := settings.VINERY_RETENTION_ALERTS_DAYS:
        deliveries.delete_before(datetime.now(UTC) - timedelta(days=days))


@shared_task(name="vinery_accounts.tasks.delete_expired_sessions")
def delete_expired_sessions() -> None:
    Session.objects.filter(expire_date__lt=datetime.now(UTC)).delete()


@shared_task(name="vinery_accounts.tasks.check_quotas")
def check_quotas() -> None:
    if quotas.check_quotas(
        datetime.now(UTC), settings.VINERY_ALERT_AT, has_email=settings.VINERY_HAS_EMAIL
    ):
        sweep_deliveries.delay()


@shared_task(name="vinery_accounts.tasks.sweep_deliveries")
def sweep_deliveries() -> None:
    """Schedule each message that is due, also after the death of its worker."""
    for delivery_id in deliveries.due_ids():
        deliver.delay(delivery_id)


@shared_task(name="vinery_accounts.tasks.deliver")
def deliver(delivery_id: int) -> None:
    deliveries.deliver(delivery_id)


@shared_task(name="vinery_accounts.tasks.sweep_mailed_views")
def sweep_mailed_views() -> None:
    for view_id in mailed_views.due_ids(datetime.now(UTC)) if settings.VINERY_HAS_EMAIL else ():
        mail_view.delay(view_id)


@shared_task(name="vinery_accounts.tasks.mail_view")
def mail_view(view_id: int) -> None:
    mailed_views.mail(view_id, datetime.now(UTC))
