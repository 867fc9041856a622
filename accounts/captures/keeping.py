"""How captures are forgotten: when their time is over, or their project wants less or is gone."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import DateTimeField, ExpressionWrapper, F

from accounts.base.bulk_delete import delete_in_batches
from accounts.models import Capture, Project

# Fewer than of others: each may be some hundred kilobytes.
_ROWS_IN_A_BATCH = 1000


def delete_expired(now: datetime) -> int:
    """Delete those whose time is over. Returns how many they were."""
    old = Capture.stored.filter(expires_at__lte=now).order_by("expires_at")
    return delete_in_batches(old, _ROWS_IN_A_BATCH)


def follow_hours(project: Project) -> None:
    """Let nothing be kept for longer than the project says now. More hours are for later
    requests alone."""
    if not project.capture_hours:
        forget_project(project.pk)
        return
    latest = ExpressionWrapper(
        F("created_at") + timedelta(hours=project.capture_hours), output_field=DateTimeField()
    )
    captures = Capture.stored.filter(project_id=project.pk, expires_at__gt=latest)
    captures.update(expires_at=latest)


def forget_project(project_id: int) -> None:
    """Delete all that was kept of it."""
    Capture.stored.filter(project_id=project_id).delete()
