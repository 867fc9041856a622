"""Limits and token weights in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Case, CharField, F, OuterRef, QuerySet, Subquery, Value, When
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.scoped import ScopedAdmin, access_of
from accounts.alerts.quotas import read_quotas
from accounts.console.limit_forms import percents_field
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
    list_display = [
        *("scope", "whose", "metric", "window", "amount", "time_zone", "week_start", "is_shadow"),
    ]
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

    def formfield_for_dbfield(self, db_field: Any, request: Any, **more: Any) -> Any:
        """Percentages as people write them, not as JSON."""
        if db_field.name == "alert_at":
            return percents_field()
        return super().formfield_for_dbfield(db_field, request, **more)

    @admin.display(description="whose", ordering="whose")
    def whose(self, limit: Any) -> str:
        """A name; nothing for the platform."""
        return limit.whose or (f"{limit.scope_id}, which is gone" if limit.scope_id else "-")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Another count is another limit. How full a quota is, is for whom it concerns."""
        if obj is None:
            return []
        is_known = access_of(request).quotas_seen().filter(pk=obj.pk).exists()
        kind = ["scope", "scope_id", "model", "metric", "window"]
        return [*kind, *(["standing"] if is_known else []), "created_at", "updated_at"]

    @admin.display(description="as it stands")
    def standing(self, limit: Limit) -> str:
        """What is left of a quota, and how long it lasts."""
        quota = next(iter(read_quotas([limit], timezone.now())), None)
        if quota is None:
            return "-"
        told = [f"{quota.num_used:,} used, {quota.num_left:,} left."]
        if quota.resets_at is not None:
            told.append(f"Begins anew at {quota.resets_at:%Y-%m-%d %H:%M} UTC.")
        if quota.runs_out_at is not None:
            told.append(f"Runs out at {quota.runs_out_at:%Y-%m-%d %H:%M} UTC at the pace of late.")
        return " ".join(told)


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
