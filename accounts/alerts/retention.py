"""Deletes old alerts and reminders, with their deliveries.

An alert stays while its window lasts, and a reminder until its date has passed: they prevent a
second message.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, Q

from accounts.base.querysets import ROWS_IN_A_BATCH, delete_in_batches
from accounts.models import Alert, KeyReminder, Limit


def delete_before(moment: datetime, *, batch_size: int = ROWS_IN_A_BATCH) -> int:
    """Delete alerts and reminders from before `moment`, and return their number."""
    limit = Limit.objects.filter(pk=OuterRef("limit_id"))
    over = Q(resets_at__lt=moment) | (Q(resets_at=None) & ~Exists(limit))
    alerts = Alert.objects.filter(over, created_at__lt=moment)
    reminders = KeyReminder.objects.filter(created_at__lt=moment, happens_at__lt=moment)
    return sum(
        delete_in_batches(old.order_by("created_at"), batch_size) for old in (alerts, reminders)
    )
