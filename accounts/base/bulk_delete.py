"""Deleting many rows without keeping anybody waiting."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet

ROWS_IN_A_BATCH: Final = 2000


def delete_in_batches(rows: QuerySet[Any], batch_size: int = ROWS_IN_A_BATCH) -> int:
    """Delete these rows in their order, and what goes with them. Returns how many there were.

    Each batch is a transaction of its own, so that nobody waits long for one, and an end in the
    middle does no harm.
    """
    num_deleted = 0
    while ids := list(rows.values_list("pk", flat=True)[:batch_size]):
        rows.model._base_manager.filter(pk__in=ids).delete()
        num_deleted += len(ids)
    return num_deleted
