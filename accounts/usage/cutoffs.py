"""Since when each table of usage is whole, and so what may be read from which."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models

from accounts.models.rollups import UsageHorizon

EVER = datetime(1, 1, 1, tzinfo=UTC)


def kept_since(table: type[models.Model]) -> datetime:
    """Rows from then on are there; `EVER` when none was deleted yet."""
    name = table._meta.model_name
    known = UsageHorizon.objects.filter(table=name).values_list("kept_since", flat=True)
    return known.first() or EVER


def all_kept_since() -> dict[str | None, datetime]:
    """The same of all tables that lost a row, by their names as models: one query for many."""
    return dict(UsageHorizon.objects.values_list("table", "kept_since"))


def forget_before(table: type[models.Model], moment: datetime) -> None:
    """Say that rows from before `moment` may be deleted. It never moves back."""
    name = table._meta.model_name
    assert name is not None
    if moment > kept_since(table):
        UsageHorizon.objects.update_or_create(table=name, defaults={"kept_since": moment})
