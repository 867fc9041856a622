"""What this room does now and then. Tasks are doors: each calls one function."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from celery import shared_task
from django.conf import settings

from accounts.usage.recovery import recover_orphans
from accounts.usage.retention import delete_old


@shared_task(name="accounts.tasks.recover_usage")
def recover_usage() -> None:
    """Close the books of processes of this host that died."""
    recover_orphans(Path(settings.VINERY_USAGE_DIR))


@shared_task(name="accounts.tasks.delete_old_usage")
def delete_old_usage() -> None:
    """Delete rows and roll-ups that are older than the settings keep them."""
    delete_old(settings.VINERY_RETENTION_DAYS, datetime.now(UTC))
