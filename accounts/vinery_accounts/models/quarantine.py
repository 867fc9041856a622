"""Requests that ended two engines: they are refused until they expire or are released."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone

from vinery_accounts.base.querysets import delete_in_batches


class QuarantinedRequestQuerySet(models.QuerySet["QuarantinedRequest"]):
    def delete_expired(self, now: datetime) -> int:
        return delete_in_batches(self.filter(expires_at__lte=now).order_by("expires_at"))


class InForceManager(models.Manager["QuarantinedRequest"]):
    """Rows that have not expired. Expired ones count as deleted."""

    def get_queryset(self) -> models.QuerySet[QuarantinedRequest]:
        return super().get_queryset().filter(expires_at__gt=timezone.now())


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

    objects = InForceManager()
    stored = QuarantinedRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.digest
