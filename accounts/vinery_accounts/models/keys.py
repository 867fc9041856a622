"""API keys with states and use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import connections, models
from django.db.models.functions import Cast
from django.db.models.lookups import Contains

from vinery_accounts.base.names import check_characters, check_name
from vinery_accounts.base.querysets import Stamped, StampedQuerySet
from vinery_accounts.outbound.addresses import read_networks


class KeyState(StrEnum):
    """Whether a key is valid, and if not, why."""

    ACTIVE = "active"
    PAUSED = "paused"
    EXPIRED = "expired"
    REVOKED = "revoked"
    OWNER_INACTIVE = "owner inactive"
    PROJECT_INACTIVE = "project inactive"
    OWNER_DEMOTED = "owner demoted"


STATES = [state.value for state in KeyState]
"""For the OpenAPI document, which would show the enum's names as labels."""


class Scope(models.TextChoices):
    INFERENCE = "inference", "Inference"
    USAGE = "usage", "Read usage"
    MANAGE = "manage", "Management API"
    ADMIN = "admin", "Administrate the platform"


def usual_scopes() -> list[str]:
    return [Scope.INFERENCE.value, Scope.USAGE.value]


def check_scopes(value: object) -> None:
    known = set(Scope.values)
    if not isinstance(value, list) or not value or not set(map(str, value)) <= known:
        raise ValidationError(f"Choose at least one of: {', '.join(sorted(known))}.")


def check_names(value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValidationError('Give a list of names, such as ["tiny-chat"]; empty allows all.')


def check_networks(value: object) -> None:
    check_names(value)
    assert isinstance(value, list)
    try:
        read_networks(value)
    except ValueError as error:
        raise ValidationError(f"{error}. Networks look like 10.0.0.0/8 or 2001:db8::/32.") from None


class ApiKeyQuerySet(StampedQuerySet["ApiKey"]):
    def mark_used(self, uses: Iterable[KeyUse]) -> None:
        """Store the last use of each key, unless a later use is stored already. `updated_at` stays:
        a use changes nothing that the key table reads. All uses go in one statement, because a busy
        server reports hundreds of keys a second."""
        connection = connections[self.db]
        moment = connection.ops.adapt_datetimefield_value
        address = connection.ops.adapt_ipaddressfield_value
        with connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE {ApiKey._meta.db_table}"
                " SET last_used_at = %s, last_used_ip = %s, last_used_model = %s"
                " WHERE id = %s AND (last_used_at IS NULL OR last_used_at < %s)",
                # Sorted: two processes lock keys in the same order, so they cannot deadlock.
                [
                    [moment(use.at), address(use.ip), use.model, use.key_id, moment(use.at)]
                    for use in sorted(uses, key=attrgetter("key_id"))
                ],
            )


class KeyUse(NamedTuple):
    key_id: int
    at: datetime
    ip: str | None
    model: str


def has_scope(scope: str) -> models.Q:
    """The keys with this scope, as a condition on JSON as text: SQLite finds nothing in lists."""
    return models.Q(Contains(Cast("scopes", models.TextField()), f'"{scope}"'))


def in_state(state: KeyState, now: datetime) -> models.Q:
    """The keys for which `ApiKey.state_at(now)` returns this state, as a condition."""
    reasons = {
        KeyState.REVOKED: models.Q(revoked_at__isnull=False),
        KeyState.EXPIRED: models.Q(expires_at__isnull=False, expires_at__lte=now),
        KeyState.PAUSED: models.Q(paused_at__isnull=False),
        KeyState.OWNER_INACTIVE: models.Q(owner__is_active=False),
        KeyState.PROJECT_INACTIVE: (
            models.Q(project__is_active=False) | models.Q(project__organization__is_active=False)
        ),
        KeyState.OWNER_DEMOTED: has_scope(Scope.ADMIN) & models.Q(owner__is_superuser=False),
    }
    condition = models.Q()
    for reason, holds in reasons.items():
        if reason is state:
            return condition & holds
        condition &= ~holds
    return condition


class ApiKey(Stamped):
    """An API key. Only a digest of its secret is stored: see `keys/secrets`. Empty lists of models,
    endpoints and networks allow all of them."""

    owner = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="api_keys")
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.PROTECT, related_name="api_keys"
    )
    name = models.CharField(max_length=100, validators=[check_name])
    note = models.CharField(max_length=500, blank=True, default="", validators=[check_characters])
    scopes = models.JSONField(default=usual_scopes, validators=[check_scopes])
    allowed_models = models.JSONField(default=list, blank=True, validators=[check_names])
    allowed_endpoints = models.JSONField(default=list, blank=True, validators=[check_names])
    allowed_networks = models.JSONField(default=list, blank=True, validators=[check_networks])
    hint = models.CharField(
        max_length=24, editable=False, help_text="Enough of the key to recognise it."
    )
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pepper_id = models.PositiveSmallIntegerField(editable=False)
    created_at = models.DateTimeField("created", auto_now_add=True)
    expires_at = models.DateTimeField("expires", null=True, blank=True)
    rotate_every_days = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text="The key must be rotated this many days after it was created; empty: never.",
    )
    rotation_grace_days = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(365)],
        help_text="A key that is not rotated expires this many days later; empty: it is only "
        "shown as overdue.",
    )
    paused_at = models.DateTimeField("paused", null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField("revoked", null=True, blank=True, editable=False)
    replaced_by = models.OneToOneField(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="replaces",
        help_text="The key that replaced this one by rotation.",
    )
    last_used_at = models.DateTimeField("last used", null=True, blank=True, editable=False)
    last_used_ip = models.GenericIPAddressField(
        "last used from", null=True, blank=True, editable=False
    )
    last_used_model = models.CharField(max_length=255, blank=True, default="", editable=False)

    objects = ApiKeyQuerySet.as_manager()  # type: ignore[misc]

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at", "-id"]
        indexes = [
            # The key table counts these every second.
            models.Index(
                fields=["id"], condition=models.Q(revoked_at__isnull=False), name="key_revoked"
            ),
            models.Index(
                fields=["id"], condition=models.Q(paused_at__isnull=False), name="key_paused"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint})"

    def clean(self) -> None:
        if self.rotation_grace_days is not None and self.rotate_every_days is None:
            raise ValidationError(
                {"rotation_grace_days": "Also set after how many days the key must be rotated."}
            )

    @property
    def is_for_administration(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def rotation_due_at(self) -> datetime | None:
        """When the key must be rotated; None for no rotation, or if it was rotated already."""
        if self.rotate_every_days is None or self.replaced_by_id is not None:
            return None
        return self.created_at + timedelta(days=self.rotate_every_days)

    def is_rotation_overdue(self, now: datetime) -> bool:
        due_at = self.rotation_due_at
        return due_at is not None and due_at <= now

    def state_at(self, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        if self.paused_at is not None:
            return KeyState.PAUSED
        if not self.owner.is_active:
            return KeyState.OWNER_INACTIVE
        project = self.project
        if not (project.is_active and project.organization.is_active):
            return KeyState.PROJECT_INACTIVE
        is_demoted = self.is_for_administration and not self.owner.is_superuser
        return KeyState.OWNER_DEMOTED if is_demoted else KeyState.ACTIVE
