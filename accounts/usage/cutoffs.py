"""Retention cutoffs: the time since which each usage table is complete."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models

from accounts.models.rollups import RetentionCutoff

EVER = datetime(1, 1, 1, tzinfo=UTC)


def kept_since(table: type[models.Model]) -> datetime:
    """Return the time from which all rows exist; `EVER` if none was deleted yet."""
    name = table._meta.model_name
    known = RetentionCutoff.objects.filter(table=name).values_list("kept_since", flat=True)
    return known.first() or EVER


def all_kept_since() -> dict[str | None, datetime]:
    """Return the cutoffs of all tables with deleted rows, by model name, in one query."""
    return dict(RetentionCutoff.objects.values_list("table", "kept_since"))


def advance_cutoff(table: type[models.Model], moment: datetime) -> None:
    """Record that rows from before `moment` may be deleted. A cutoff never moves back."""
    name = table._meta.model_name
    assert name is not None
    if moment > kept_since(table):
        RetentionCutoff.objects.update_or_create(table=name, defaults={"kept_since": moment})
