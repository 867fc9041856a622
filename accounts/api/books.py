"""What is only read: refused requests and the audit log."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Rows
from accounts.api.wire import (
    Filters,
    Strict,
    choice_filter,
    id_filter,
    period_filters,
    switch_filter,
    text_filter,
)
from accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from accounts.models import AuditEntry, RefusedRequest, Scope
from accounts.services import audit
from accounts.usage.effects import Effect, with_effect


class Dated(Filters):
    """From a moment to before another."""

    lookups: ClassVar[dict[str, str]] = {"from": "created_at__gte", "to": "created_at__lt"}

    def get_fields(self) -> Any:
        """With two names, of which one is a word of Python."""
        return {**super().get_fields(), **period_filters()}


class RefusalBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """Why a limit refused a request, or would have, or what it let go no further."""

    effect = serializers.ChoiceField(
        choices=Effect.choices,
        allow_null=True,
        help_text="`refused`, or `cut_short` where the request ran and its answer could go no "
        "further, or `shadow`; null where the request's row of usage is deleted already.",
    )

    class Meta:
        model = RefusedRequest
        fields = [
            *("id", "request_id", "created_at", "organization_id", "organization_name"),
            *("project_id", "project_name", "user_id", "username", "key_id", "key_name"),
            *("model", "limit_id", "scope", "metric", "window", "amount", "level", "needed"),
            *("wait_s", "is_shadow", "effect"),
        ]


class RefusalFilters(Dated):
    """Which refusals."""

    organization_id = id_filter("an organisation")
    project_id = id_filter("a project")
    user_id = id_filter("a user")
    key_id = id_filter("a key")
    limit_id = id_filter("a limit")
    request_id = text_filter("Of this request.")
    model = text_filter("Of requests to this model.")
    scope = text_filter("Of limits of this scope, such as key:12.")
    metric = choice_filter(METRIC_CHOICES, "Only of this metric.")
    window = choice_filter(WINDOW_CHOICES, "Only in this window.")
    is_shadow = switch_filter("Only of limits that refuse nothing, or only of the others.")
    effect = choice_filter(Effect.choices, "Only with this effect.")


class Refusals(Rows):
    """Requests that a limit refused or cut short, each with the limit, how full it was, what
    the request needed, and how long it should have waited."""

    model = RefusedRequest
    serializer_class = RefusalBody
    filters = RefusalFilters
    ordering = ("-created_at",)
    words = ("a refusal", "refusals")
    read_scope = Scope.USAGE

    def get_queryset(self) -> QuerySet[Any]:
        """With what the limit did."""
        return with_effect(super().get_queryset())


class AuditBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """One act."""

    class Meta:
        model = AuditEntry
        fields = [
            *("id", "number", "created_at", "actor_id", "actor", "ip", "action"),
            *("organization_id", "target_kind", "target_id", "target", "before", "after"),
            *("previous_hash", "hash"),
        ]


class AuditFilters(Dated):
    """Which acts."""

    organization_id = id_filter("an organisation")
    actor_id = id_filter("a user who acted, or whose key did")
    action = text_filter("Exactly this act, such as key.revoke.")
    target_kind = text_filter("What was acted on, such as key.")
    target_id = text_filter("Which one was acted on.")
    search = text_filter(
        "A part of who, what, what to, or what was before or after; or an address."
    )

    def filter_search(self, rows: QuerySet[AuditEntry], text: str) -> QuerySet[AuditEntry]:
        """As people remember."""
        return audit.search(rows, text)


class VerdictQuery(Strict):
    """What the chain is checked against."""

    newest_hash = serializers.RegexField(
        "^[0-9a-f]{64}$",
        required=False,
        help_text="A hash that was the newest once: tells whether the end was cut off.",
    )


class VerdictBody(Strict):
    """Whether the log is whole."""

    is_whole = serializers.BooleanField()
    num_entries = serializers.IntegerField(help_text="From the beginning to the first break.")
    newest_hash = serializers.CharField(help_text="Keep it elsewhere, and give it the next time.")
    broken = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in audit.Break], allow_null=True
    )
    number = serializers.IntegerField(allow_null=True, help_text="Of the first broken entry.")
    message = serializers.CharField()


class Audit(Rows):
    """What was done by whom, the newest first. Admins see their organisation's entries,
    everybody their own acts. Entries are never changed, and each is chained to the one before
    by its hash."""

    model = AuditEntry
    serializer_class = AuditBody
    filters = AuditFilters
    ordering = ("-number",)
    words = ("an act", "acts")
    query: ClassVar[dict[str, Any]] = {"verify": [VerdictQuery]}

    @extend_schema(responses=VerdictBody)
    @action(detail=False, methods=["get"], filter_backends=[], pagination_class=None)
    def verify(self, request: Request) -> Response:
        """Check the whole chain. For administrators of the platform."""
        query = VerdictQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        self.require_superuser()
        verdict = audit.verify(query.validated_data.get("newest_hash"))
        return Response(
            {
                "is_whole": verdict.broken is None,
                "num_entries": verdict.num_entries,
                "newest_hash": verdict.newest_hash,
                "broken": verdict.broken,
                "number": verdict.number,
                "message": verdict.message,
            }
        )
