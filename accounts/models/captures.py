"""What projects that ask for it keep of their requests: the texts sealed, the rest in words."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class KeptManager(models.Manager["Capture"]):
    """Those whose time is not over: others are as good as deleted."""

    def get_queryset(self) -> models.QuerySet[Capture]:
        """As of now."""
        return super().get_queryset().filter(expires_at__gt=timezone.now())


class Capture(models.Model):
    """The body and the answer of one request. Without foreign keys, as all books."""

    request_id = models.CharField(max_length=64, unique=True)
    project_id = models.BigIntegerField()
    created_at = models.DateTimeField("created")
    expires_at = models.DateTimeField("expires", db_index=True)
    dialect = models.CharField(max_length=16, help_text="v1 or v3.")
    endpoint = models.CharField(max_length=32)
    num_body_bytes = models.PositiveIntegerField("body (bytes)", help_text="As it was sent.")
    num_answer_bytes = models.PositiveIntegerField("answer (bytes)", help_text="As it was sent.")
    is_body_cut = models.BooleanField(
        "body is cut", help_text="Not all of it is kept, so it cannot be sent again."
    )
    is_answer_cut = models.BooleanField("answer is cut", help_text="Not all of it is kept.")
    is_redacted = models.BooleanField("redacted", help_text="Something was blacked out.")
    sealed = models.BinaryField(editable=False)

    objects = KeptManager()
    stored = models.Manager["Capture"]()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["project_id", "created_at"], name="capture_of_project")]

    def __str__(self) -> str:
        return self.request_id
