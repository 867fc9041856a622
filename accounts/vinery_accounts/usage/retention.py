"""Deletes old usage, and knows the retention cutoffs: the times since which tables are complete.

The cutoff of a table is stored before its rows are deleted. Reports switch to coarser roll-ups
at that moment, so their totals do not change."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta

from django.db.models import Model

from vinery_accounts.base.querysets import delete_in_batches
from vinery_accounts.models import usage

EVER = datetime(1, 1, 1, tzinfo=UTC)
# The tables by the names in settings (`VINERY_RETENTION_*_DAYS`).
TABLES: dict[str, type[Model]] = {
    "rows": usage.UsageRecord,
    "by_minute": usage.MinuteRollup,
    "by_hour": usage.HourRollup,
    "by_day": usage.DayRollup,
    "refusals": usage.RefusedRequest,
}


def kept_since(table: type[Model]) -> datetime:
    """Return the time from which all rows exist; `EVER` if none was deleted yet."""
    return all_kept_since()[table]


def all_kept_since() -> dict[type[Model], datetime]:
    stored = dict(usage.RetentionCutoff.objects.values_list("table", "kept_since"))
    return {table: stored.get(str(table._meta.model_name), EVER) for table in TABLES.values()}


def delete_old(keep_days: Mapping[str, int], now: datetime) -> dict[str, int]:
    """Delete rows older than `keep_days` whole days in UTC; 0 keeps all rows of a table. Returns
    the number of deleted rows by table."""
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    return {
        name: _delete_before(TABLES[name], today - timedelta(days=days))
        for name, days in keep_days.items()
        if days
    }


def _delete_before(table: type[Model], moment: datetime) -> int:
    if moment > kept_since(table):  # a longer retention brings no rows back
        usage.RetentionCutoff.objects.update_or_create(
            table=table._meta.model_name, defaults={"kept_since": moment}
        )
    is_rollup = issubclass(table, usage.Rollup)
    column, bound = ("start_s", int(moment.timestamp())) if is_rollup else ("created_at", moment)
    rows = table._default_manager.filter(**{f"{column}__lt": bound}).order_by(column)
    return delete_in_batches(rows)
