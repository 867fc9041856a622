"""API keys in Django's admin: created, shown once, changed, paused, rotated, revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from accounts.admin.base import ResourceAdmin, ResourceForm, VisibleFilter, access_of
from accounts.models import ApiKey, KeyState, Scope
from accounts.models.keys import in_state, usual_scopes
from accounts.resources.base import Conflict, Issued
from accounts.resources.keys import KEYS, KeySerializer

_ISSUED: Final = [
    *("hint", "state", "created_at", "rotation_due_at", "paused_at", "revoked_at", "replaced_by"),
    *("last_used_at", "last_used_ip", "last_used_model"),
]
_GRACE: Final = timedelta(days=1)


class KeyStateFilter(admin.SimpleListFilter):
    """Keys by their state."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return a choice for each state."""
        return [(state.value, state.value) for state in KeyState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """Return the keys in the chosen state."""
        states = [state for state in KeyState if state.value == self.value()]
        return queryset.filter(in_state(states[0], timezone.now())) if states else queryset


class LinesField(forms.CharField):
    """A list of texts, one on each line."""

    widget = forms.Textarea(attrs={"rows": 2, "cols": 50})

    def prepare_value(self, value: Any) -> Any:
        """Return the text of the page."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the list."""
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the lists differ."""
        return bool(list(initial or []) != self.to_python(data))


class ApiKeyForm(ResourceForm[ApiKey]):
    """A form with the rules of keys."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices, widget=forms.CheckboxSelectMultiple, initial=usual_scopes
    )

    def check_row(self, row: ApiKey, stored: ApiKey | None) -> None:
        """Check the permission, the owner's role, and the end of the key."""
        super().check_row(row, stored)
        KEYS.check_end(self.cleaned_data, stored)


@admin.register(ApiKey)
class ApiKeyAdmin(ResourceAdmin[ApiKey]):
    """Creates keys, shows their secrets once, and changes them until they are revoked."""

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
    actions = ["pause", "resume", "rotate", "revoke"]

    @admin.display(description="to be rotated")
    def rotation_due_at(self, key: ApiKey) -> str | SafeString:
        """Return when the rotation is due, and whether it is overdue."""
        due_at = key.rotation_due_at
        if due_at is None:
            return "never"
        is_overdue = key.is_rotation_overdue(timezone.now())
        return f"{due_at:%Y-%m-%d %H:%M} UTC{', overdue' if is_overdue else ''}"

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        """Return the state of the key now."""
        state = key.state_at(timezone.now())
        return format_html(
            '<span class="state state-{}">{}</span>', slugify(state), state.capitalize()
        )

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """Return the writable columns, and those of a stored key that are not."""
        writable = [name for name, field in self.api_fields.items() if not field.read_only]
        return writable if obj is None else [*writable, *_ISSUED]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        """The owner and the project of a key are fixed."""
        return [] if obj is None else [*KeySerializer.Meta.fixed, *_ISSUED]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Return a field with one line for each name, instead of JSON."""
        if db_field.name.startswith("allowed_"):
            kwargs["form_class"] = LinesField
            text = self.api_fields[db_field.name].help_text
            return LinesField(required=False, help_text=f"{text} One on each line.")
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Propose the user as the owner, and the first project."""
        project = access_of(request).projects_seen().order_by("id").first()
        proposed = {"owner": request.user.pk, "project": project and project.pk}
        return {**proposed, **super().get_changeform_initial_data(request)}

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Only superusers delete: a deleted key looks like one that never existed."""
        return bool(request.user.is_superuser)

    def save_model(
        self,
        request: HttpRequest,
        obj: ApiKey,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """Store the key, and show the secret of a new one."""
        names = [*form.cleaned_data]
        values = {name: getattr(obj, name) for name in names}
        if change:
            KEYS.change(access_of(request), obj, values)
            return
        new = KEYS.create(access_of(request), values)
        # The admin continues with the object of its form.
        obj.pk = new.row.pk
        obj.refresh_from_db()
        _show(request, new.secret, "the new key")

    @admin.action(description="Pause selected keys", permissions=["change"])
    def pause(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Pause the keys."""
        self._act(request, keys.filter(paused_at=None), "pause")

    @admin.action(description="Resume selected keys", permissions=["change"])
    def resume(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Resume the paused keys."""
        self._act(request, keys.filter(paused_at__isnull=False), "resume")

    @admin.action(description="Revoke selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Revoke the keys."""
        self._act(request, keys, "revoke")

    @admin.action(
        description="Rotate selected keys: the old ones work for a day more",
        permissions=["change"],
    )
    def rotate(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Rotate the keys, and show the new secrets."""
        self._act(request, keys, "rotate", grace_s=_GRACE.total_seconds())

    def _act(self, request: HttpRequest, keys: QuerySet[ApiKey], name: str, **values: Any) -> None:
        access, action, num_done = access_of(request), KEYS.action(name), 0
        for key in keys.filter(revoked_at=None).select_related("owner", "project__organization"):
            try:
                result = KEYS.act(access, action, key, **values)
            except (PermissionDenied, Conflict) as error:
                messages.error(request, f"{key}: {error}")
                continue
            if isinstance(result, Issued):
                _show(request, result.secret, f"the key that replaces {key}")
            num_done += 1
            self.log_change(request, key, f"{action.done.capitalize()}.")
        messages.success(request, f"{num_done} of the selected keys {action.done}.")


def _show(request: HttpRequest, secret: str, what: str) -> None:
    messages.warning(
        request,
        format_html("Copy {} now, it cannot be shown again: <code>{}</code>", what, secret),
    )
