"""Limits and token weights in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Case, CharField, F, OuterRef, QuerySet, Subquery, Value, When
from django.http import HttpRequest

from accounts.admin.scoped import ScopedAdmin
from accounts.models import (
    ApiKey,
    Limit,
    LimitScope,
    ModelWeight,
    Organization,
    Project,
    User,
)

_NAMED = {
    LimitScope.ORGANIZATION: (Organization, "name"),
    LimitScope.PROJECT: (Project, "name"),
    LimitScope.USER: (User, "username"),
    LimitScope.KEY: (ApiKey, "name"),
}


@admin.register(Limit)
class LimitAdmin(ScopedAdmin[Limit]):
    """All limits that concern a request hold together."""

    empty_text = "No limit yet: everybody may use everything. Add one for whom it is too much."
    list_display = ["scope", "whose", "metric", "window", "amount", "time_zone", "is_shadow"]
    list_filter = ["scope", "metric", "window", "is_shadow"]
    search_fields = ["model", "scope_id"]
    ordering = ["scope", "scope_id", "model", "metric", "window"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the name of whom each is for."""
        names = [
            When(
                scope=scope,
                then=Subquery(
                    model._default_manager.filter(pk=OuterRef("scope_id")).values(column)[:1]
                ),
            )
            for scope, (model, column) in _NAMED.items()
        ]
        of_model = When(scope=LimitScope.MODEL, then=F("model"))
        name = Case(*names, of_model, default=Value(""), output_field=CharField())
        limits: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = limits.annotate(whose=name)
        return named

    @admin.display(description="whose", ordering="whose")
    def whose(self, limit: Any) -> str:
        """A name; nothing for the platform."""
        return limit.whose or (f"{limit.scope_id}, which is gone" if limit.scope_id else "-")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Another count is another limit."""
        kind = ["scope", "scope_id", "model", "metric", "window"]
        return [] if obj is None else [*kind, "created_at", "updated_at"]


@admin.register(ModelWeight)
class ModelWeightAdmin(ScopedAdmin[ModelWeight]):
    """What tokens count for in budgets."""

    empty_text = "No weights yet: each token of each model counts 1."
    list_display = ["model", "uncached", "cached", "output", "image"]
    search_fields = ["model"]
    ordering = ["model"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Weights change, the model does not."""
        return [] if obj is None else ["model", "updated_at"]
