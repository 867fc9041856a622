"""Records of requests, kept for a time, and the audit log, a hash chain: see `access/audit`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar

from django.db import models
from django.utils import timezone

from vinery_accounts.base.errors import AppendOnly
from vinery_accounts.base.querysets import delete_in_batches

RowT = TypeVar("RowT", bound=models.Model)

# Fewer than of other tables: a capture may have some hundred kilobytes.
_ROWS_IN_A_BATCH: Final = 1000


class ExpiringQuerySet(models.QuerySet[RowT, RowT]):
    """Rows with `expires_at`, also expired ones."""

    def delete_expired(self, now: datetime) -> int:
        old = self.filter(expires_at__lte=now).order_by("expires_at")
        return delete_in_batches(old, _ROWS_IN_A_BATCH)


class KeptManager(models.Manager[RowT]):
    """Rows that have not expired. Expired ones count as deleted."""

    def get_queryset(self) -> models.QuerySet[RowT]:
        return super().get_queryset().filter(expires_at__gt=timezone.now())


# -- Requests and answers that projects keep: the texts encrypted, the rest in plain columns


class CaptureQuerySet(ExpiringQuerySet["Capture"]):
    def follow_hours(self, project_id: int, hours: int) -> None:
        """Keep a project's captures for at most this long; 0 hours delete them. Captures never
        expire later than before: more hours apply to later requests only."""
        captures = self.filter(project_id=project_id)
        if not hours:
            captures.delete()
            return
        latest = models.ExpressionWrapper(
            models.F("created_at") + timedelta(hours=hours), output_field=models.DateTimeField()
        )
        captures.filter(expires_at__gt=latest).update(expires_at=latest)


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


# -- Requests that ended two engines: refused until the row expires or is released


class QuarantinedRequest(models.Model):
    """What no engine is given again. Ids and names are copied, as in usage records."""

    digest = models.CharField(
        max_length=32,
        unique=True,
        help_text="A hash of the model and of what its engine was to do; no text of the client.",
    )
    request_id = models.CharField(
        max_length=64, help_text="Of the first request that ended two engines."
    )
    created_at = models.DateTimeField("since")
    expires_at = models.DateTimeField("expires", db_index=True)
    user_id = models.BigIntegerField(null=True)
    username = models.CharField("user", max_length=150, blank=True, default="")
    key_id = models.BigIntegerField(null=True)
    key_name = models.CharField("key", max_length=100, blank=True, default="")
    project_id = models.BigIntegerField(null=True)
    project_name = models.CharField("project", max_length=100, blank=True, default="")
    organization_id = models.BigIntegerField(null=True)
    organization_name = models.CharField("organisation", max_length=100, blank=True, default="")
    model = models.CharField(max_length=255)

    objects = KeptManager()
    stored = ExpiringQuerySet["QuarantinedRequest"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.digest


# -- The audit log


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    """A query set that only reads: every method that changes rows raises `AppendOnly`."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnly

    update = delete = _raw_delete = bulk_create = bulk_update = update_or_create = _refuse


class AuditEntry(models.Model):
    """One action. Never changed and never deleted."""

    number = models.PositiveBigIntegerField(unique=True, help_text="1, 2, 3, ... without a gap.")
    created_at = models.DateTimeField("at")
    actor_id = models.BigIntegerField(null=True)
    actor = models.CharField(
        max_length=200, help_text="A user, a key of a user, or the command line."
    )
    ip = models.GenericIPAddressField("address", null=True)
    action = models.CharField(max_length=64, help_text="Such as key.revoke.")
    organization_id = models.BigIntegerField(null=True)
    target_kind = models.CharField(max_length=64)
    target_id = models.CharField(max_length=64)
    target = models.CharField(max_length=255, help_text="Its name then.")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ["-number"]
        indexes = [
            models.Index(fields=["target_kind", "target_id"], name="audit_by_target"),
            models.Index(fields=["actor_id", "created_at"], name="audit_by_actor"),
            models.Index(fields=["organization_id", "created_at"], name="audit_by_org"),
        ]

    def __str__(self) -> str:
        return f"{self.number}: {self.action} {self.target} by {self.actor}"

    def save(self, **kwargs: Any) -> None:
        """Insert the entry. Raises `AppendOnly` if it is stored already."""
        if not self._state.adding:
            raise AppendOnly
        super().save(**{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnly
