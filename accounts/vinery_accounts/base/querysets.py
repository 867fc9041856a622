"""Query sets that keep `updated_at` true, and deletion of many rows in short transactions.

The key table re-reads only rows with a new `updated_at`. Django sets an `auto_now` field in
`save()`, but neither in `save(update_fields=...)` nor in `QuerySet.update()`. Here both set the
field, and so does `bulk_update()`, which calls `update()`.
"""

from typing import Any, Final, TypeVar

from django.db import models
from django.utils import timezone

RowT = TypeVar("RowT", bound=models.Model)

ROWS_IN_A_BATCH: Final = 2000


class StampedQuerySet(models.QuerySet[RowT, RowT]):
    def update(self, **kwargs: Any) -> int:
        return super().update(**{"updated_at": timezone.now(), **kwargs})

    # Keeps templates from calling it.
    update.alters_data = True  # type: ignore[attr-defined]


class Stamped(models.Model):
    """A row with `updated_at`. Another default manager must use `StampedQuerySet`, too."""

    updated_at = models.DateTimeField(auto_now=True, db_index=True)

    objects = StampedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, **kwargs: Any) -> None:
        if kwargs.get("update_fields"):
            kwargs["update_fields"] = {*kwargs["update_fields"], "updated_at"}
        super().save(**kwargs)


def delete_in_batches(rows: models.QuerySet[Any], batch_size: int = ROWS_IN_A_BATCH) -> int:
    """Delete these rows in their order, with cascades. Returns how many rows there were. Each batch
    is its own transaction, so other writers wait only for one batch, and a process that dies in the
    middle leaves a consistent database."""
    num_deleted = 0
    while ids := list(rows.values_list("pk", flat=True)[:batch_size]):
        rows.model._base_manager.filter(pk__in=ids).delete()
        num_deleted += len(ids)
    return num_deleted
