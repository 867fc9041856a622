"""Organisations, projects, roles, limits, token weights and webhooks in Django's admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib import admin, messages
from django.db.models import Case, CharField, F, OuterRef, QuerySet, Subquery, Value, When
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.base import ResourceAdmin, VisibleFilter, access_of
from accounts.alerts import webhooks
from accounts.alerts.quotas import read_quotas
from accounts.models import (
    Limit,
    LimitScope,
    Membership,
    ModelWeight,
    Organization,
    Project,
    Webhook,
)
from accounts.resources.alerts import WEBHOOKS
from accounts.resources.forms import PercentsField
from accounts.resources.limits import LIMITS, MODEL_WEIGHTS
from accounts.resources.organizations import ORGANIZATIONS, PROJECTS
from accounts.resources.owners import OWNERS
from accounts.resources.users import MEMBERSHIPS
from accounts.services.access import Action

_DATES: Final = ["created_at", "updated_at"]


@admin.register(Organization)
class OrganizationAdmin(ResourceAdmin[Organization]):
    """Organisations. Deactivating one stops its keys."""

    resource = ORGANIZATIONS
    list_display = ["name", "is_active", "created_at"]
    list_filter = ["is_active"]
    search_fields = ["name"]
    readonly_fields = _DATES
    ordering = ["name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Owners rename their organisation, superusers deactivate it."""
        may = obj is None or access_of(request).may(Action.SWITCH, obj)
        return [*super().get_readonly_fields(request, obj), *([] if may else ["is_active"])]


@admin.register(Project)
class ProjectAdmin(ResourceAdmin[Project]):
    """Projects. Deactivating one stops its keys."""

    resource = PROJECTS
    list_display = ["name", "organization", "is_active", "created_at"]
    list_filter = ["is_active", ("organization", VisibleFilter)]
    search_fields = ["name", "organization__name"]
    autocomplete_fields = ["organization"]
    readonly_fields = _DATES
    ordering = ["organization__name", "name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Admins of the organisation set what is captured."""
        may = obj is None or access_of(request).may(Action.CAPTURE, obj)
        return [*super().get_readonly_fields(request, obj), *([] if may else ["capture_hours"])]

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Hide redactions, which hint at the texts, from users who may not set them."""
        may = obj is None or access_of(request).may(Action.CAPTURE, obj)
        return [] if may else ["capture_redactions"]


@admin.register(Membership)
class MembershipAdmin(ResourceAdmin[Membership]):
    """Roles of users."""

    resource = MEMBERSHIPS
    list_display = ["user", "role", "organization", "project", "created_at"]
    list_filter = ["role", ("organization", VisibleFilter)]
    list_select_related = ["user", "organization", "project__organization"]
    search_fields = ["user__username", "organization__name", "project__name"]
    autocomplete_fields = ["user", "organization", "project"]
    ordering = ["organization__name", "project__name", "user__username"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Show the date of a stored role."""
        return [*super().get_readonly_fields(request, obj), *(["created_at"] if obj else [])]


@admin.register(Limit)
class LimitAdmin(ResourceAdmin[Limit]):
    """Limits. A request has to satisfy all limits that apply to it."""

    resource = LIMITS
    list_display = [
        *("scope", "whose", "metric", "window", "amount", "time_zone", "week_start", "is_shadow"),
    ]
    list_filter = ["scope", "metric", "window", "is_shadow"]
    search_fields = ["model", "scope_id"]
    ordering = ["scope", "scope_id", "model", "metric", "window"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the limits with the names of their owners."""
        names = [
            When(
                scope=scope,
                then=Subquery(
                    model.objects.filter(pk=OuterRef("scope_id")).values(
                        "username" if scope == LimitScope.USER else "name"
                    )[:1]
                ),
            )
            for scope, model in OWNERS.items()
        ]
        of_model = When(scope=LimitScope.MODEL, then=F("model"))
        name = Case(*names, of_model, default=Value(""), output_field=CharField())
        limits: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = limits.annotate(whose=name)
        return named

    def formfield_for_dbfield(self, db_field: Any, request: Any, **more: Any) -> Any:
        """Return a field of percentages for `alert_at`, instead of JSON."""
        if db_field.name == "alert_at":
            return PercentsField()
        return super().formfield_for_dbfield(db_field, request, **more)

    @admin.display(description="whose", ordering="whose")
    def whose(self, limit: Any) -> str:
        """Return the name of the owner; nothing for the platform."""
        return limit.whose or (f"{limit.scope_id}, which was removed" if limit.scope_id else "-")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Show the use of a quota to users who may see it."""
        if obj is None:
            return []
        is_visible = access_of(request).quotas_seen().filter(pk=obj.pk).exists()
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, *(["current_use"] if is_visible else []), *_DATES]

    @admin.display(description="current use")
    def current_use(self, limit: Limit) -> str:
        """Return what is left of a quota, and how long it lasts."""
        quota = next(iter(read_quotas([limit], timezone.now())), None)
        if quota is None:
            return "-"
        texts = [f"{quota.num_used:,} used, {quota.num_left:,} left."]
        if quota.resets_at is not None:
            texts.append(f"Resets at {quota.resets_at:%Y-%m-%d %H:%M} UTC.")
        if quota.runs_out_at is not None:
            texts.append(f"Runs out at {quota.runs_out_at:%Y-%m-%d %H:%M} UTC at the current rate.")
        return " ".join(texts)


@admin.register(ModelWeight)
class ModelWeightAdmin(ResourceAdmin[ModelWeight]):
    """Weights of tokens in budgets."""

    resource = MODEL_WEIGHTS
    list_display = ["model", "uncached", "cached", "output", "image"]
    search_fields = ["model"]
    ordering = ["model"]


@admin.register(Webhook)
class WebhookAdmin(ResourceAdmin[Webhook]):
    """URLs that receive alerts."""

    resource = WEBHOOKS
    list_display = ["name", "organization", "url", "is_active", "created_at"]
    list_filter = ["is_active"]
    search_fields = ["name", "url"]
    ordering = ["name"]
    fields = ["organization", "name", "url", "is_active"]
    actions = ["rotate_secrets", "rotate_secrets_at_once"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show until when the previous secret of a stored webhook is valid."""
        return self.fields if obj is None else [*self.fields, "previous_secret_until"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Show until when the previous secret of a stored webhook is valid."""
        return [] if obj is None else ["organization", "previous_secret_until"]

    @admin.action(
        description="Rotate selected secrets: the old ones sign, too, for a day",
        permissions=["change"],
    )
    def rotate_secrets(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        """Rotate with a grace period, in which receivers can be changed."""
        self._rotate(request, rows, webhooks.USUAL_GRACE)

    @admin.action(
        description="Rotate selected secrets: the old ones end at once", permissions=["change"]
    )
    def rotate_secrets_at_once(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        """Rotate leaked secrets."""
        self._rotate(request, rows, timedelta(0))

    def _rotate(self, request: HttpRequest, rows: QuerySet[Webhook], grace: timedelta) -> None:
        for webhook in rows:
            if not self.may_manage(request, webhook):
                messages.error(request, f"{webhook}: your role does not allow this.")
                continue
            _show(request, webhooks.rotate(webhook, grace), webhook)

    def save_model(
        self,
        request: HttpRequest,
        obj: Webhook,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """Store the webhook, and show the secret of a new one once."""
        secret = "" if change else webhooks.new_secret()
        if secret:
            obj.secret = webhooks.encrypt_secret(secret)
        super().save_model(request, obj, form, change)
        if secret:
            _show(request, secret, obj)


def _show(request: HttpRequest, secret: str, webhook: Webhook) -> None:
    messages.warning(request, f"Copy the secret of {webhook} now, it is not shown again: {secret}")
