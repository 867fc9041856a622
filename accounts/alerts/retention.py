"""How long alerts and reminders are kept, with how they were delivered.

What is still needed is kept longer: an alert tells that its threshold was told of in its window,
and a reminder that its moment was.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.db import models
from django.db.models import Exists, OuterRef, Q

from accounts.models import Alert, KeyReminder, Limit

_ROWS_IN_A_BATCH: Final = 2000


def delete_before(moment: datetime, *, batch_size: int = _ROWS_IN_A_BATCH) -> int:
    """Delete what is older and over. Returns how many alerts and reminders went.

    Each batch is a transaction of its own, so that nobody waits long for one.
    """
    limit = Limit.objects.filter(pk=OuterRef("limit_id"))
    over = Q(resets_at__lt=moment) | (Q(resets_at=None) & ~Exists(limit))
    alerts = Alert.objects.filter(over, created_at__lt=moment)
    reminders = KeyReminder.objects.filter(created_at__lt=moment, happens_at__lt=moment)
    return _delete(alerts, batch_size) + _delete(reminders, batch_size)


def _delete(old: models.QuerySet[Any], batch_size: int) -> int:
    num_deleted = 0
    while ids := list(old.order_by("created_at").values_list("pk", flat=True)[:batch_size]):
        old.model._default_manager.filter(pk__in=ids).delete()
        num_deleted += len(ids)
    return num_deleted
