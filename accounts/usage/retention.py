"""Deletes old usage.

The cutoff of a table is stored before its rows are deleted (`cutoffs`). Reports switch to
coarser roll-ups at that moment, so their totals do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta

from django.db import models
from django.db.models import QuerySet

from accounts.base.querysets import ROWS_IN_A_BATCH, delete_in_batches
from accounts.models import DayRollup, HourRollup, MinuteRollup, RefusedRequest, UsageRecord
from accounts.usage import cutoffs

TABLES: dict[str, type[models.Model]] = {
    "rows": UsageRecord,
    "by_minute": MinuteRollup,
    "by_hour": HourRollup,
    "by_day": DayRollup,
    "refusals": RefusedRequest,
}
"""The tables by the names in settings (`VINERY_RETENTION_*_DAYS`)."""


def delete_old(
    keep_days: Mapping[str, int], now: datetime, *, batch_size: int = ROWS_IN_A_BATCH
) -> dict[str, int]:
    """Delete rows older than `keep_days` whole days in UTC; 0 keeps all rows of a table.

    Returns the number of deleted rows by table.
    """
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    return {
        name: _delete_before(TABLES[name], today - timedelta(days=days), batch_size)
        for name, days in keep_days.items()
        if days
    }


def _delete_before(table: type[models.Model], moment: datetime, batch_size: int) -> int:
    cutoffs.advance_cutoff(table, moment)
    return delete_in_batches(_before(table, moment), batch_size)


def _before(table: type[models.Model], moment: datetime) -> QuerySet[models.Model]:
    rows = table._default_manager.all()
    if table in (UsageRecord, RefusedRequest):
        return rows.filter(created_at__lt=moment).order_by("created_at")
    return rows.filter(start_s__lt=int(moment.timestamp())).order_by("start_s")
