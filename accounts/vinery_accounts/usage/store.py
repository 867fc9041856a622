"""Stores settlements as usage records and in roll-ups, once for each request id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar

import msgspec
from django.db import connection, models, transaction

from vinery_accounts.models import ApiKey, Currency, KeyUse, ModelWeight
from vinery_accounts.models.usage import RefusedRequest, UsageRecord
from vinery_accounts.usage import entries, rollups, upkeep
from vinery_accounts.usage.entries import Settlement, TokenCounts

logger = logging.getLogger(__name__)

RowT = TypeVar("RowT", UsageRecord, RefusedRequest)

_MAX_COUNT = 2**31 - 1  # of an integer column


def store_settlements(settlements: Sequence[Settlement]) -> None:
    """Insert new usage records, add them to roll-ups, and mark the keys as used. Raises
    `django.db.Error`, and then nothing was stored."""
    if not settlements:
        return
    refusals = [
        _row(RefusedRequest, settlement.admission, bound)
        for settlement in settlements
        for bound in settlement.bound_limits
    ]
    with transaction.atomic():
        rollups.take_usage_lock()
        records = _records(settlements)
        new = _new(records)
        _insert(new)
        rollups.add_rows(new)
        if refusals:
            RefusedRequest.objects.bulk_create(refusals, ignore_conflicts=True)
        in_order = sorted(records, key=lambda row: row.created_at)
        last_uses = {row.key_id: row for row in in_order if row.key_id is not None}
        ApiKey.objects.mark_used(
            KeyUse(key_id, last.created_at, last.ip, last.model)
            for key_id, last in last_uses.items()
        )


def _records(settlements: Iterable[Settlement]) -> list[UsageRecord]:
    """Return unsaved records. Requests of killed processes are weighted here."""
    rows, known = [], None
    for settlement in settlements:
        row = _row(UsageRecord, settlement.admission, settlement)
        rows.append(row)
        if row.weighted_tokens is None:
            known = _weights() if known is None else known
            counts = _counts(row, settlement.admission.media)
            weights = known.get(row.model, entries.EQUAL_WEIGHTS)
            row.weighted_tokens = weights.weigh_milli(counts) / 1000
            row.cost = weights.cost_milli(counts) / 1000
    return rows


def _weights() -> dict[str, entries.Weights]:
    return entries.weights_by_model(ModelWeight.objects.all(), are_prices=bool(Currency.current()))


def _counts(row: UsageRecord, media: entries.Media | None) -> TokenCounts:
    num_cached = min(row.num_cached_tokens, row.num_prompt_tokens)
    num_image = media.num_new_tokens(num_cached) if media and row.num_prompt_tokens else 0
    return TokenCounts(
        num_prompt_tokens=row.num_prompt_tokens,
        num_output_tokens=row.num_output_tokens,
        num_cached_tokens=num_cached,
        num_image_tokens=num_image,
    )


def _new(rows: Iterable[UsageRecord]) -> list[UsageRecord]:
    """Return the first record of each request without a record in the database. A record from
    before the retention cutoff is not counted: it may have been stored and deleted already."""
    by_id: dict[str, UsageRecord] = {}
    for row in rows:
        by_id.setdefault(row.request_id, row)
    for request_id in UsageRecord.objects.in_bulk(list(by_id), field_name="request_id"):
        del by_id[request_id]
    kept_since = upkeep.kept_since(UsageRecord)
    too_old = [row.request_id for row in by_id.values() if row.created_at < kept_since]
    if too_old:
        logger.error(
            "%d requests from before %s are not counted: their rows may have been deleted",
            len(too_old),
            kept_since,
        )
    return [row for row in by_id.values() if row.created_at >= kept_since]


def _insert(rows: Iterable[UsageRecord]) -> None:
    """Insert records. Django's `bulk_create` spends half of the time on preparing each of some
    forty values; this function prepares only the values that need it."""
    columns = [column for column in UsageRecord._meta.concrete_fields if not column.primary_key]
    prepared = {
        column: isinstance(column, models.DateTimeField | models.GenericIPAddressField)
        for column in columns
    }
    values = [
        [
            column.get_db_prep_save(value, connection) if needs_preparing else value
            for column, needs_preparing in prepared.items()
            for value in (getattr(row, column.attname),)
        ]
        for row in rows
    ]
    names = ", ".join(column.attname for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        table = UsageRecord._meta.db_table
        cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)


def _row(table: type[RowT], *entries: msgspec.Struct) -> RowT:
    """Return an unsaved row. Its columns have the names of the entries' fields."""
    values: dict[str, Any] = {}
    for entry in entries:
        values |= msgspec.structs.asdict(entry)
    values["created_at"] = values["started_at"]
    return table(**{name: fit(values[name]) for name, fit in _FITS[table].items()})


def _ip(text: str | None) -> str | None:
    """Return an address that the column accepts, or None, for example for a socket path."""
    try:
        return None if text is None else str(ip_address(text))
    except ValueError:
        return None


def _fit_of(column: models.Field[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that adjusts values to a column, so that no value blocks the queue."""
    if isinstance(column, models.CharField):
        # PostgreSQL stores no NUL character.
        return lambda text: text.replace("\0", "")[: column.max_length]
    if isinstance(column, models.GenericIPAddressField):
        return _ip
    if column.name.startswith("num_"):
        return lambda number: min(max(number, 0), _MAX_COUNT)
    return lambda value: value


_FITS: dict[type[models.Model], dict[str, Callable[[Any], Any]]] = {
    table: {
        column.attname: _fit_of(column)
        for column in table._meta.concrete_fields
        if not column.primary_key
    }
    for table in (UsageRecord, RefusedRequest)
}
