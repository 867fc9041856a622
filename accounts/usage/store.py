"""Settlements to rows of the database. Idempotent: the request id is unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import models, transaction

from accounts.models import ApiKey, UsageRecord
from accounts.usage.entries import Settlement

_MAX_COUNT = 2**31 - 1  # of an integer column
_WIDTHS = {
    field.name: field.max_length
    for field in UsageRecord._meta.get_fields()
    if isinstance(field, models.CharField)
}


def store_settlements(settlements: Sequence[Settlement]) -> None:
    """Insert the rows that are not there yet, and mark their keys as used.

    Raises `django.db.Error`, and then nothing was stored.
    """
    if not settlements:
        return
    with transaction.atomic():
        UsageRecord.objects.bulk_create(map(_record, settlements), ignore_conflicts=True)
        # Sorted, so that two processes lock keys in one order and never wait in a circle.
        for key_id, used_at in sorted(_last_uses(settlements).items()):
            ApiKey.objects.mark_used(key_id, used_at)


def _last_uses(settlements: Iterable[Settlement]) -> dict[int, datetime]:
    uses: dict[int, datetime] = {}
    for admission in (settlement.admission for settlement in settlements):
        if admission.key_id is not None:
            previous = uses.get(admission.key_id, admission.started_at)
            uses[admission.key_id] = max(previous, admission.started_at)
    return uses


def _record(settlement: Settlement) -> UsageRecord:
    """The row, cut to what the columns hold: one odd value must not stop the queue."""
    admission = settlement.admission
    return UsageRecord(
        request_id=_text("request_id", admission.request_id),
        created_at=admission.started_at,
        user_id=admission.user_id,
        username=_text("username", admission.username),
        key_id=admission.key_id,
        key_name=_text("key_name", admission.key_name),
        model=_text("model", admission.model),
        endpoint=_text("endpoint", admission.endpoint),
        dialect=_text("dialect", admission.dialect),
        is_streamed=admission.is_streamed,
        num_prompt_tokens=_count(settlement.num_prompt_tokens),
        num_cached_tokens=_count(settlement.num_cached_tokens),
        num_output_tokens=_count(settlement.num_output_tokens),
        num_reasoning_tokens=_count(settlement.num_reasoning_tokens),
        queue_ms=settlement.queue_ms,
        first_token_ms=settlement.first_token_ms,
        total_ms=settlement.total_ms,
        http_status=settlement.http_status,
        outcome=settlement.outcome,
        error_code=_text("error_code", settlement.error_code),
    )


def _text(column: str, text: str) -> str:
    # PostgreSQL stores no NUL character.
    return text.replace("\0", "")[: _WIDTHS[column]]


def _count(number: int) -> int:
    return min(max(number, 0), _MAX_COUNT)
