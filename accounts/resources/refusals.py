"""Requests that a limit refused."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from rest_framework import serializers

from accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from accounts.models import RefusedRequest, Scope
from accounts.resources.base import Resource
from accounts.resources.fields import (
    DatedFilters,
    choice_filter,
    id_filter,
    switch_filter,
    text_filter,
)
from accounts.services.access import Access
from accounts.usage.effects import Effect, with_effect


class RefusalSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """Why a limit refused a request or cut it short. A shadow limit only records it."""

    effect = serializers.ChoiceField(
        choices=Effect.choices,
        allow_null=True,
        help_text="`refused`; `cut_short` where the request ran and its answer was ended early; "
        "`shadow`; null where the usage record of the request is deleted already.",
    )

    class Meta:
        model = RefusedRequest
        fields: ClassVar[list[str]] = [
            *("id", "request_id", "created_at", "organization_id", "organization_name"),
            *("project_id", "project_name", "user_id", "username", "key_id", "key_name"),
            *("model", "limit_id", "scope", "metric", "window", "amount", "level", "needed"),
            *("wait_s", "is_shadow", "effect"),
        ]


class RefusalFilters(DatedFilters):
    """Which refusals."""

    organization_id = id_filter("an organisation")
    project_id = id_filter("a project")
    user_id = id_filter("a user")
    key_id = id_filter("a key")
    limit_id = id_filter("a limit")
    request_id = text_filter("Only of this request.")
    model = text_filter("Only of requests to this model.")
    scope = text_filter("Only by limits of this scope, such as key:12.")
    metric = choice_filter(METRIC_CHOICES, "Only by limits of this metric.")
    window = choice_filter(WINDOW_CHOICES, "Only by limits of this window.")
    is_shadow = switch_filter("Only by shadow limits, or only by the others.")
    effect = choice_filter(Effect.choices, "Only with this effect.")


class Refusals(Resource[RefusedRequest]):
    """Requests that a limit refused or cut short, each with the limit, its level, the amount that
    the request needed, and how long the client should have waited."""

    model = RefusedRequest
    serializer = RefusalSerializer
    filters = RefusalFilters
    ordering = ("-created_at",)
    one, many = "a refusal", "refusals"
    read_scope = Scope.USAGE.value
    empty_text = "No request was refused by a limit."
    columns: ClassVar[dict[str, Any]] = {
        "at": "created_at",
        "user": "username",
        "key": "key_name",
        **{name: name for name in ("scope", "whose", "metric", "window", "amount", "level")},
        **{name: name for name in ("needed", "wait_s", "effect")},
    }

    def rows(self, access: Access) -> QuerySet[RefusedRequest]:
        """Return the refusals with the effect of the limit."""
        return with_effect(super().rows(access))


REFUSALS: Final = Refusals()
