"""Stores settlements as usage records and in roll-ups, once for each request id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from django.db import connection, models, transaction
from msgspec import structs

from accounts.models import ApiKey, KeyUse, ModelWeight, RefusedRequest, UsageRecord
from accounts.usage import cutoffs, rollups
from accounts.usage.entries import Admission, Settlement
from accounts.usage.weights import EQUAL_WEIGHTS, Weights, weights_by_model

logger = logging.getLogger(__name__)

_IDS_IN_A_QUERY = 1000
_MAX_COUNT = 2**31 - 1  # of an integer column
# All columns but the id, and whether Django must convert their values for the database.
_COLUMNS = [
    (field, isinstance(field, models.DateTimeField | models.GenericIPAddressField))
    for field in UsageRecord._meta.concrete_fields
    if not field.primary_key
]
_WIDTHS = {
    field.name: field.max_length
    for field in UsageRecord._meta.get_fields()
    if isinstance(field, models.CharField)
}


def store_settlements(settlements: Sequence[Settlement]) -> None:
    """Insert new usage records, add them to roll-ups, and mark their keys as used.

    Raises `django.db.Error`, and then nothing was stored.
    """
    if not settlements:
        return
    with transaction.atomic():
        rollups.take_usage_lock()
        rows = _new(map(_record, _weighed(settlements)))
        _insert(rows)
        rollups.add_rows(rows)
        refusals = [row for settlement in settlements for row in _refusals(settlement)]
        if refusals:
            RefusedRequest.objects.bulk_create(refusals, ignore_conflicts=True)
        ApiKey.objects.mark_used(
            KeyUse(key_id, last.started_at, _ip(last.ip), _text("model", last.model))
            for key_id, last in _last_uses(settlements).items()
        )


def _weighed(settlements: Sequence[Settlement]) -> Iterable[Settlement]:
    """Add the weighted tokens to settlements of killed processes, which lack them."""
    if all(settlement.weighted_tokens is not None for settlement in settlements):
        return settlements
    weights = weights_by_model(ModelWeight.objects.all())
    return [
        settlement
        if settlement.weighted_tokens is not None
        else structs.replace(settlement, weighted_tokens=_weight_of(settlement, weights))
        for settlement in settlements
    ]


def _weight_of(settlement: Settlement, weights: Mapping[str, Weights]) -> float:
    num_input = _count(settlement.num_prompt_tokens)
    num_cached = min(_count(settlement.num_cached_tokens), num_input)
    of_model = weights.get(settlement.admission.model, EQUAL_WEIGHTS)
    num_output = _count(settlement.num_output_tokens)
    return of_model.weigh_milli(num_input, num_output, num_cached) / 1000


def _new(rows: Iterable[UsageRecord]) -> list[UsageRecord]:
    """Return the first record of each request that has none in the database.

    A record from before the retention cutoff may have been stored, aggregated and deleted
    already, so it is not counted again.
    """
    by_id: dict[str, UsageRecord] = {}
    for row in rows:
        by_id.setdefault(row.request_id, row)
    ids = list(by_id)
    for at in range(0, len(ids), _IDS_IN_A_QUERY):
        known = UsageRecord.objects.filter(request_id__in=ids[at : at + _IDS_IN_A_QUERY])
        for request_id in known.values_list("request_id", flat=True):
            del by_id[request_id]
    kept_since = cutoffs.kept_since(UsageRecord)
    too_old = [row.request_id for row in by_id.values() if row.created_at < kept_since]
    if too_old:
        logger.error(
            "%d requests from before %s are not counted: their rows may have been deleted",
            len(too_old),
            kept_since,
        )
    return [row for row in by_id.values() if row.created_at >= kept_since]


def _insert(rows: Iterable[UsageRecord]) -> None:
    """Insert records. Django's `bulk_create` prepares each of some forty values, which takes
    half of the time; this prepares only the values that need it."""
    values = [
        [
            field.get_db_prep_save(value, connection) if needs_preparing else value
            for field, needs_preparing in _COLUMNS
            for value in (getattr(row, field.attname),)
        ]
        for row in rows
    ]
    names = ", ".join(field.attname for field, _ in _COLUMNS)
    marks = ", ".join(["%s"] * len(_COLUMNS))
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {UsageRecord._meta.db_table} ({names}) VALUES ({marks})", values
        )


def _last_uses(settlements: Iterable[Settlement]) -> dict[int, Admission]:
    uses: dict[int, Admission] = {}
    for admission in (settlement.admission for settlement in settlements):
        if admission.key_id is not None:
            last = uses.get(admission.key_id, admission)
            is_later = admission.started_at >= last.started_at
            uses[admission.key_id] = admission if is_later else last
    return uses


def _record(settlement: Settlement) -> UsageRecord:
    """Return the record with values cut to the columns, so that no value blocks the queue."""
    admission = settlement.admission
    return UsageRecord(
        **_shared_columns(admission),
        client_request_id=_text("client_request_id", admission.client_request_id),
        ip=_ip(admission.ip),
        asked_model=_text("asked_model", admission.asked_model),
        endpoint=_text("endpoint", admission.endpoint),
        dialect=_text("dialect", admission.dialect),
        is_streamed=admission.is_streamed,
        num_prompt_tokens=_count(settlement.num_prompt_tokens),
        num_cached_tokens=_count(settlement.num_cached_tokens),
        num_image_tokens=_count(settlement.num_image_tokens),
        num_audio_tokens=_count(settlement.num_audio_tokens),
        num_output_tokens=_count(settlement.num_output_tokens),
        num_reasoning_tokens=_count(settlement.num_reasoning_tokens),
        weighted_tokens=settlement.weighted_tokens or 0.0,
        queue_ms=settlement.queue_ms,
        prefill_ms=settlement.prefill_ms,
        first_token_ms=settlement.first_token_ms,
        inter_token_ms=settlement.inter_token_ms,
        total_ms=settlement.total_ms,
        num_request_bytes=_count(admission.num_request_bytes),
        num_response_bytes=_count(settlement.num_response_bytes),
        energy_mj=settlement.energy_mj,
        http_status=settlement.http_status,
        outcome=settlement.outcome.value,
        finish_reason=_text("finish_reason", settlement.finish_reason),
        error_code=_text("error_code", settlement.error_code),
        is_exact=settlement.is_exact,
    )


def _refusals(settlement: Settlement) -> Iterator[RefusedRequest]:
    shared = _shared_columns(settlement.admission)
    for bound in settlement.bound_limits:
        yield RefusedRequest(
            **shared,
            limit_id=bound.limit_id,
            scope=bound.scope[:300],
            metric=bound.metric,
            window=bound.window,
            amount=bound.amount,
            level=bound.level,
            needed=bound.needed,
            wait_s=bound.wait_s,
            is_shadow=bound.is_shadow,
        )


def _shared_columns(admission: Admission) -> dict[str, Any]:
    """Return the columns of both usage records and refusals."""
    return {
        "request_id": _text("request_id", admission.request_id),
        "created_at": admission.started_at,
        "user_id": admission.user_id,
        "username": _text("username", admission.username),
        "key_id": admission.key_id,
        "key_name": _text("key_name", admission.key_name),
        "project_id": admission.project_id,
        "project_name": _text("project_name", admission.project_name),
        "organization_id": admission.organization_id,
        "organization_name": _text("organization_name", admission.organization_name),
        "model": _text("model", admission.model),
    }


def _ip(text: str | None) -> str | None:
    """Return an address that the column accepts, or None, for example for a socket path."""
    try:
        return None if text is None else str(ip_address(text))
    except ValueError:
        return None


def _text(column: str, text: str) -> str:
    # PostgreSQL stores no NUL character.
    return text.replace("\0", "")[: _WIDTHS[column]]


def _count(number: int) -> int:
    return min(max(number, 0), _MAX_COUNT)
