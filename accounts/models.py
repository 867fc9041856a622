"""People, keys and usage rows."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from django.contrib.auth import models as auth
from django.db import models
from django.utils import timezone

from accounts.stamps import Stamped, StampedQuerySet
from accounts.usage.entries import Outcome


class UserManager(auth.UserManager["User"]):
    """Django's own, over a queryset that stamps what it updates."""

    def get_queryset(self) -> StampedQuerySet[User]:
        """All users."""
        return StampedQuerySet(self.model, using=self._db)


class User(Stamped, auth.AbstractUser):
    """A person or a service that owns keys. Ours from the first migration on, because a
    user model cannot be exchanged later."""

    objects: ClassVar[UserManager] = UserManager()

    class Meta(auth.AbstractUser.Meta):
        indexes = [
            # Inactive users are few; the key table asks for them every second.
            models.Index(fields=["id"], condition=models.Q(is_active=False), name="user_inactive"),
        ]


class KeyState(StrEnum):
    """Whether a key opens the door, and if not, why."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"
    OWNER_INACTIVE = "owner inactive"


class ApiKeyQuerySet(StampedQuerySet["ApiKey"]):
    """The ways in which keys change."""

    def revoke(self) -> int:
        """Stop these keys for good. Returns how many were not revoked before."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())

    def mark_used(self, key_id: int, at: datetime) -> None:
        """Remember a use, unless a later one is known.

        The stamp stays: a use does not change what the key table knows.
        """
        is_news = models.Q(last_used_at=None) | models.Q(last_used_at__lt=at)
        models.QuerySet.update(self.filter(is_news, id=key_id), last_used_at=at)


class ApiKey(Stamped):
    """A key that a program calls with. The secret itself is nowhere: see `accounts.keys`."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    hint = models.CharField(
        max_length=24, editable=False, help_text="Enough of the key to recognise it."
    )
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pepper_id = models.PositiveSmallIntegerField(editable=False)
    created_at = models.DateTimeField("created", auto_now_add=True)
    expires_at = models.DateTimeField("expires", null=True, blank=True)
    revoked_at = models.DateTimeField("revoked", null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField("last used", null=True, blank=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at", "-id"]
        indexes = [
            # The key table counts the revoked ones every second.
            models.Index(
                fields=["id"], condition=models.Q(revoked_at__isnull=False), name="key_revoked"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint})"

    def state_at(self, now: datetime) -> KeyState:
        """The first reason for which the key is refused at `now`, or ACTIVE."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE if self.owner.is_active else KeyState.OWNER_INACTIVE


class UsageRecord(models.Model):
    """What one request used.

    Ids and names are copied, without foreign keys, so that the books outlive the people,
    keys and models in them. Written by `accounts.usage` only, exactly once for each request.
    """

    request_id = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField("arrived")
    user_id = models.BigIntegerField(null=True)
    username = models.CharField("user", max_length=150)
    key_id = models.BigIntegerField(null=True)
    key_name = models.CharField("key", max_length=100)
    model = models.CharField(max_length=255)
    endpoint = models.CharField(max_length=64)
    dialect = models.CharField(max_length=16, help_text="The URL tree: v1 or v3.")
    is_streamed = models.BooleanField("streamed")
    num_prompt_tokens = models.PositiveIntegerField("prompt tokens", default=0)
    num_cached_tokens = models.PositiveIntegerField(
        "cached tokens", default=0, help_text="Part of the prompt tokens."
    )
    num_output_tokens = models.PositiveIntegerField("output tokens", default=0)
    num_reasoning_tokens = models.PositiveIntegerField(
        "reasoning tokens", default=0, help_text="Part of the output tokens."
    )
    queue_ms = models.FloatField(null=True)
    first_token_ms = models.FloatField(null=True)
    total_ms = models.FloatField(null=True)
    http_status = models.PositiveSmallIntegerField(
        null=True, help_text="Empty when the process ended before it answered."
    )
    outcome = models.CharField(
        max_length=16, choices=[(outcome.value, outcome.label) for outcome in Outcome]
    )
    error_code = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["created_at", "id"], name="usage_by_time"),
            models.Index(fields=["user_id", "created_at"], name="usage_by_user"),
            models.Index(fields=["key_id", "created_at"], name="usage_by_key"),
            models.Index(fields=["model", "created_at"], name="usage_by_model"),
        ]

    def __str__(self) -> str:
        return self.request_id
