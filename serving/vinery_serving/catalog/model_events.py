"""The history of a model: each change of its state, with the reason."""

from __future__ import annotations

from typing import Final

from django.db import models

from vinery_accounts.models import AuditEntry
from vinery_serving.catalog.models import ServedModel

# Events that are kept of each model. More of them are deleted, the oldest first.
MAX_EVENTS: Final = 500
# Deleting costs a query: the history is cut when it is longer by this.
_SLACK: Final = 50


class ModelEvent(models.Model):
    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=16, help_text="The state that the model had from then on.")
    reason = models.TextField(blank=True, help_text="Why it changed; empty: as it was asked to.")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.model_id}: {self.state}"


def asker_of(model_id: int) -> str:
    """Return who last asked to load, unload or change the model; empty: unknown."""
    entries = AuditEntry.objects.filter(target_kind="model", target_id=str(model_id))
    return entries.values_list("actor", flat=True).first() or ""


def record(model_id: int, state: str, reason: str = "") -> None:
    """Add an event, unless it repeats the newest one, or has no reason for the same state. Raises
    DatabaseError."""
    events = ModelEvent.objects.filter(model_id=model_id)
    newest = events.first()
    if newest is not None and newest.state == state and reason in ("", newest.reason):
        return
    if not ServedModel.objects.filter(pk=model_id).exists():
        return
    ModelEvent.objects.create(model_id=model_id, state=state, reason=reason)
    if events.count() > MAX_EVENTS + _SLACK:
        kept = events.values_list("pk", flat=True)[MAX_EVENTS - 1]
        events.filter(pk__lt=kept).delete()
