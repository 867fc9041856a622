"""The audit log. Entries form a hash chain: see `services/audit`."""

from typing import Any, NoReturn

from django.db import models

from vinery_accounts.base.errors import AppendOnly


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
