"""API keys in Django's admin: created, shown once, changed, paused, rotated, revoked."""

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from vinery_accounts.admin.base import (
    ResourceAdmin,
    ResourceForm,
    VisibleFilter,
    access_of,
    row_action,
)
from vinery_accounts.models import ApiKey, KeyState, Project, Scope
from vinery_accounts.models.keys import usual_scopes
from vinery_accounts.resources.keys import KEYS, scope_choices

_GRACE: Final = timedelta(days=1)
_NOT_REVOKED: Final = Q(revoked_at=None)


class KeyStateFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in KeyState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """Return the keys in the chosen state, or all for an unknown one."""
        state = self.value()
        is_known = state in KeyState.__members__.values()
        return KEYS.filters().narrow(queryset, "state", state) if is_known else queryset


class LinesField(forms.CharField):
    """A list of texts, one on each line."""

    widget = forms.Textarea(attrs={"rows": 2, "cols": 50})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(list(initial or []) != self.to_python(data))


class ApiKeyForm(ResourceForm):
    scopes = forms.MultipleChoiceField(
        choices=Scope.choices, widget=forms.CheckboxSelectMultiple, initial=usual_scopes
    )

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        field = self.fields.get("scopes")  # a page that only shows a key has none
        if isinstance(field, forms.MultipleChoiceField):
            field.choices = scope_choices(self.access)

    def check_row(self, row: ApiKey, stored: ApiKey | None) -> None:
        super().check_row(row, stored)
        KEYS.check_end(self.cleaned_data, stored)


@admin.register(ApiKey)
class ApiKeyAdmin(ResourceAdmin):
    form = ApiKeyForm
    resource = KEYS
    list_display = [
        *("name", "owner", "project", "hint", "state", "created_at", "expires_at"),
        *("rotation_due_at", "last_used_at"),
    ]
    list_filter = [KeyStateFilter, ("project", VisibleFilter), "created_at", "last_used_at"]
    search_fields = ["name", "hint", "owner__username"]
    autocomplete_fields = ["owner", "project"]
    ordering = ["-created_at", "-id"]
    stored_fields = [
        *("hint", "state", "created_at", "rotation_due_at", "paused_at", "revoked_at"),
        *("replaced_by", "last_used_at", "last_used_ip", "last_used_model"),
    ]
    actions = [
        row_action("pause", "Pause selected keys", only=_NOT_REVOKED & Q(paused_at=None)),
        row_action("resume", "Resume selected keys", only=_NOT_REVOKED & ~Q(paused_at=None)),
        row_action(
            "rotate",
            "Rotate selected keys: the old ones work for a day more",
            only=_NOT_REVOKED,
            grace_s=_GRACE.total_seconds(),
        ),
        row_action("revoke", "Revoke selected keys", only=_NOT_REVOKED),
    ]

    @admin.display(description="to be rotated")
    def rotation_due_at(self, key: ApiKey) -> str:
        due_at = key.rotation_due_at
        if due_at is None:
            return "never"
        is_overdue = key.is_rotation_overdue(timezone.now())
        return f"{due_at:%Y-%m-%d %H:%M} UTC{', overdue' if is_overdue else ''}"

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        state = key.state_at(timezone.now())
        return format_html(
            '<span class="state state-{}">{}</span>', slugify(state), state.capitalize()
        )

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """Return the writable columns, and those of a stored key that are not."""
        writable = [name for name, field in self.api_fields.items() if not field.read_only]
        return writable if obj is None else [*writable, *self.stored_fields]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Return a field with one line for each name, instead of JSON."""
        if db_field.name.startswith("allowed_"):
            text = self.api_fields[db_field.name].help_text
            return LinesField(required=False, help_text=f"{text} One on each line.")
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Propose the user as the owner, and the first project."""
        project = access_of(request).rows(Project).order_by("id").first()
        proposed = {"owner": request.user.pk, "project": project and project.pk}
        return {**proposed, **super().get_changeform_initial_data(request)}
