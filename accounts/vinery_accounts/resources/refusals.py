"""Requests that a limit refused."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db.models import QuerySet
from rest_framework import serializers

from vinery_accounts.models import RefusedRequest, Scope
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import EVERYTHING, Resource, columns_of
from vinery_accounts.resources.fields import DatedFilters
from vinery_accounts.resources.owners import owners_of
from vinery_accounts.services.access import Access
from vinery_accounts.usage.effects import Effect, with_effect


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
        fields = [
            *("id", "request_id", "created_at", "organization_id", "organization_name"),
            *("project_id", "project_name", "user_id", "username", "key_id", "key_name"),
            *("model", "limit_id", "scope", "metric", "window", "amount", "level", "needed"),
            *("wait_s", "is_shadow", "effect"),
        ]


class Refusals(Resource[RefusedRequest]):
    """Requests that a limit refused or cut short, each with the limit, its level, the amount that
    the request needed, and how long the client should have waited."""

    model = RefusedRequest
    serializer = RefusalSerializer
    filters = DatedFilters.of(
        organization_id=fields.id_filter("an organisation"),
        project_id=fields.id_filter("a project"),
        user_id=fields.id_filter("a user"),
        key_id=fields.id_filter("a key"),
        limit_id=fields.id_filter("a limit"),
        request_id=fields.text_filter("Only of this request."),
        model=fields.text_filter("Only of requests to this model."),
        scope=fields.text_filter("Only by limits of this scope, such as key:12."),
        effect=fields.choice_filter(Effect.choices, "Only with this effect."),
        **fields.limit_filters(),
    )
    ordering = ("-created_at",)
    one, many = "a refusal", "refusals"
    read_scope = Scope.USAGE.value
    empty_text = "No request was refused by a limit."
    search = ("request_id__exact", "username", "key_name", "scope")
    columns = columns_of(
        "at=created_at user=username key=key_name scope whose metric window amount level needed "
        "wait_s effect"
    )

    def rows(self, access: Access) -> QuerySet[RefusedRequest]:
        return with_effect(super().rows(access))

    def extra_columns(self, rows: Sequence[RefusedRequest]) -> Sequence[Mapping[str, Any]]:
        names = owners_of(EVERYTHING, [row.scope for row in rows])
        return [
            {
                "whose": names[row.scope],
                "project": row.project_name,
                "organization": row.organization_name,
                "shadow": row.is_shadow,
            }
            for row in rows
        ]


REFUSALS: Final = Refusals()
