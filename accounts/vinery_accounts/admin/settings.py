"""Organisations, projects, roles, limits, token weights and webhooks in Django's admin."""

from typing import Any, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Case, CharField, F, OuterRef, Subquery, Value, When
from django.http import HttpRequest
from django.utils import timezone

from vinery_accounts.admin.base import (
    ResourceAdmin,
    ResourceForm,
    VisibleFilter,
    access_of,
    row_action,
)
from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.quotas import read_quotas
from vinery_accounts.models import (
    OWNERS,
    Limit,
    LimitScope,
    Membership,
    ModelWeight,
    Organization,
    Project,
    Webhook,
)
from vinery_accounts.resources.alerts import WEBHOOKS
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.forms import PercentsField
from vinery_accounts.resources.limits import LIMITS, MODEL_WEIGHTS
from vinery_accounts.resources.organizations import ORGANIZATIONS, PROJECTS
from vinery_accounts.resources.users import MEMBERSHIPS
from vinery_accounts.services.access import Action

_DATES: Final = ["created_at", "updated_at"]


@admin.register(Organization)
class OrganizationAdmin(ResourceAdmin):
    resource = ORGANIZATIONS
    list_display = ["name", "is_active", "created_at"]
    list_filter = ["is_active"]
    search_fields = ["name"]
    readonly_fields = _DATES
    ordering = ["name"]


@admin.register(Project)
class ProjectAdmin(ResourceAdmin):
    resource = PROJECTS
    list_display = ["name", "organization", "is_active", "created_at"]
    list_filter = ["is_active", ("organization", VisibleFilter)]
    search_fields = ["name", "organization__name"]
    autocomplete_fields = ["organization"]
    readonly_fields = _DATES
    ordering = ["organization__name", "name"]
    # Admins of the organisation set what is captured.
    field_permissions = {"capture_hours": Action.CAPTURE}

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Hide redactions, which hint at the texts, from users who may not set them."""
        may = obj is None or access_of(request).may(Action.CAPTURE, obj)
        return [] if may else ["capture_redactions"]


@admin.register(Membership)
class MembershipAdmin(ResourceAdmin):
    resource = MEMBERSHIPS
    list_display = ["user", "role", "organization", "project", "created_at"]
    list_filter = ["role", ("organization", VisibleFilter)]
    list_select_related = ["user", "organization", "project__organization"]
    search_fields = ["user__username", "organization__name", "project__name"]
    autocomplete_fields = ["user", "organization", "project"]
    ordering = ["organization__name", "project__name", "user__username"]
    stored_fields = ["created_at"]


class LimitForm(ResourceForm):
    """A form with percentages for `alert_at`, instead of JSON, and names instead of ids."""

    scope_id = forms.CharField(
        label="Of",
        required=False,
        help_text="The name of the organisation, project, user or key, or its id.",
    )
    alert_at = PercentsField()

    def clean_scope_id(self) -> int:
        """Return the id, 0 for none. Raises ValidationError for a name that not exactly one visible
        row has."""
        text, scope = self.cleaned_data["scope_id"].strip(), self.cleaned_data.get("scope", "")
        if not text or id_of(text) is not None:
            return id_of(text) or 0
        if scope not in OWNERS:
            raise ValidationError("Leave it empty: such a limit belongs to no row.")
        rows = self.access.rows(OWNERS[scope]).filter(**{_name_of(scope): text})
        found = list(rows.values_list("pk", flat=True)[:2])
        if len(found) != 1:
            problem = "Several have" if found else "None has"
            raise ValidationError(f"{problem} the name {text}. Give the id.")
        return int(found[0])


def _name_of(scope: str) -> str:
    return "username" if scope == LimitScope.USER else "name"


@admin.register(Limit)
class LimitAdmin(ResourceAdmin):
    form = LimitForm
    resource = LIMITS
    list_display = [
        *("scope", "whose", "metric", "window", "amount", "time_zone", "week_start", "is_shadow"),
    ]
    list_filter = ["scope", "metric", "window", "is_shadow"]
    search_fields = ["model", "scope_id"]
    ordering = ["scope", "scope_id", "model", "metric", "window"]
    stored_fields = ["current_use", *_DATES]

    def get_queryset(self, request: HttpRequest) -> Any:
        names = [
            When(
                scope=scope,
                then=Subquery(
                    model._default_manager.filter(pk=OuterRef("scope_id")).values(_name_of(scope))[
                        :1
                    ]
                ),
            )
            for scope, model in OWNERS.items()
        ]
        of_model = When(scope=LimitScope.MODEL, then=F("model"))
        name = Case(*names, of_model, default=Value(""), output_field=CharField())
        return super().get_queryset(request).annotate(whose=name)

    @admin.display(description="whose", ordering="whose")
    def whose(self, limit: Any) -> str:
        return limit.whose or (f"{limit.scope_id}, which was removed" if limit.scope_id else "-")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Hide the use of a quota from users who may not see it."""
        fields = super().get_readonly_fields(request, obj)
        if obj is not None and not access_of(request).quotas_seen().filter(pk=obj.pk).exists():
            fields.remove("current_use")
        return fields

    @admin.display(description="current use")
    def current_use(self, limit: Limit) -> str:
        quota = next(iter(read_quotas([limit], timezone.now())), None)
        if quota is None:
            return "-"
        texts = [f"{quota.num_used:,} used, {quota.num_left:,} left."]
        if quota.resets_at is not None:
            texts.append(f"Resets at {quota.resets_at:%Y-%m-%d %H:%M} UTC.")
        if quota.runs_out_at is not None:
            at = f"{quota.runs_out_at:%Y-%m-%d %H:%M} UTC"
            texts.append(f"May run out at {at}, at the current rate.")
        return " ".join(texts)


@admin.register(ModelWeight)
class ModelWeightAdmin(ResourceAdmin):
    resource = MODEL_WEIGHTS
    list_display = ["model", "uncached", "cached", "output", "image"]
    search_fields = ["model"]
    ordering = ["model"]


@admin.register(Webhook)
class WebhookAdmin(ResourceAdmin):
    resource = WEBHOOKS
    list_display = ["name", "organization", "url", "is_active", "created_at"]
    list_filter = ["is_active"]
    search_fields = ["name", "url"]
    ordering = ["name"]
    fields = ["organization", "name", "url", "is_active"]
    stored_fields = ["previous_secret_until"]
    actions = [
        row_action(
            "rotate",
            "Rotate selected secrets: the old ones sign, too, for a day",
            name="rotate_secrets",
            grace_s=webhooks.USUAL_GRACE.total_seconds(),
        ),
        row_action(
            "rotate",
            "Rotate selected secrets: the old ones end at once",
            name="rotate_secrets_at_once",
            grace_s=0,
        ),
    ]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj is None else [*self.fields, *self.stored_fields]
