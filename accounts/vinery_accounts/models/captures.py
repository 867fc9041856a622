"""Requests and answers that projects keep: the texts encrypted, the rest in plain columns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import models
from django.utils import timezone

from vinery_accounts.base.querysets import delete_in_batches

# Fewer than of other tables: a capture may have some hundred kilobytes.
_ROWS_IN_A_BATCH: Final = 1000


class CaptureQuerySet(models.QuerySet["Capture"]):
    def delete_expired(self, now: datetime) -> int:
        old = self.filter(expires_at__lte=now).order_by("expires_at")
        return delete_in_batches(old, _ROWS_IN_A_BATCH)

    def follow_hours(self, project_id: int, hours: int) -> None:
        """Keep a project's captures for at most this long; 0 hours delete them.

        Captures never expire later than before: more hours apply to later requests only.
        """
        captures = self.filter(project_id=project_id)
        if not hours:
            captures.delete()
            return
        latest = models.ExpressionWrapper(
            models.F("created_at") + timedelta(hours=hours),
            output_field=models.DateTimeField(),
        )
        captures.filter(expires_at__gt=latest).update(expires_at=latest)


class KeptManager(models.Manager["Capture"]):
    """Captures that have not expired. Expired ones count as deleted."""

    def get_queryset(self) -> models.QuerySet[Capture]:
        return super().get_queryset().filter(expires_at__gt=timezone.now())


class Capture(models.Model):
    """The body and the answer of one request. Without foreign keys, like usage records."""

    request_id = models.CharField(max_length=64, unique=True)
    project_id = models.BigIntegerField()
    created_at = models.DateTimeField("created")
    expires_at = models.DateTimeField("expires", db_index=True)
    dialect = models.CharField(max_length=16, help_text="v1 or v3.")
    endpoint = models.CharField(max_length=32)
    num_body_bytes = models.PositiveIntegerField("body (bytes)", help_text="Its full size.")
    num_answer_bytes = models.PositiveIntegerField("answer (bytes)", help_text="Its full size.")
    is_body_cut = models.BooleanField("body is cut", help_text="Only a part is kept.")
    is_answer_cut = models.BooleanField("answer is cut", help_text="Only a part is kept.")
    is_redacted = models.BooleanField("redacted", help_text="Parts are blacked out.")
    encrypted_texts = models.BinaryField(db_column="sealed", editable=False)

    objects = KeptManager()
    stored = CaptureQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["project_id", "created_at"], name="capture_of_project")]

    def __str__(self) -> str:
        return self.request_id
