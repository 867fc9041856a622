"""What this room does now and then. Tasks are doors: each calls one function."""

from __future__ import annotations

from pathlib import Path

from celery import shared_task
from django.conf import settings

from accounts.usage.recovery import recover_orphans


@shared_task(name="accounts.tasks.recover_usage")
def recover_usage() -> None:
    """Close the books of processes of this host that died."""
    recover_orphans(Path(settings.VINERY_USAGE_DIR))
