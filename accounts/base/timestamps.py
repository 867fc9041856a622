"""Rows that tell when they last changed, whichever way they are written.

The key table re-reads only rows with a new stamp. Django moves an `auto_now` field in
`save()`, but neither in `save(update_fields=...)` nor in `QuerySet.update()`: here both
do, and with `update()` also `bulk_update()`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models
from django.utils import timezone

RowT = TypeVar("RowT", bound=models.Model)


class StampedQuerySet(models.QuerySet[RowT, RowT]):
    """A queryset whose `update()` moves `updated_at`."""

    def update(self, **kwargs: Any) -> int:
        """As Django's. A caller that gives `updated_at` itself is obeyed."""
        return super().update(**{"updated_at": timezone.now(), **kwargs})

    # Keeps templates from calling it.
    update.alters_data = True  # type: ignore[attr-defined]


class Stamped(models.Model):
    """A row with `updated_at`, for a model whose default manager is stamped too."""

    updated_at = models.DateTimeField(auto_now=True, db_index=True)

    class Meta:
        abstract = True

    def save(self, **kwargs: Any) -> None:
        """As Django's, but a save of some fields saves the stamp with them."""
        if kwargs.get("update_fields"):
            kwargs["update_fields"] = {*kwargs["update_fields"], "updated_at"}
        super().save(**kwargs)
