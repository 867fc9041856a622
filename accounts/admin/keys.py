"""API keys in Django's admin: made, shown once, changed, paused, rotated, revoked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from accounts.admin.scoped import ScopedAdmin, ScopedForm, SeenFilter, access_of
from accounts.keys import rotation
from accounts.keys.lifecycle import (
    change_key,
    create_key,
    pause_key,
    resume_key,
    revoke_key,
    rotate_key,
)
from accounts.models import ApiKey, KeyState, Role, Scope
from accounts.models.keys import in_state, usual_scopes
from accounts.services.access import Access, Action

_LISTS: Final = ("allowed_models", "allowed_endpoints", "allowed_networks")
_ENDS: Final = ["expires_at", "rotate_every_days", "rotation_grace_days"]
_CHANGED: Final = ["name", "scopes", *_LISTS, *_ENDS]
_CHOSEN: Final = ["name", "owner", "project", *_CHANGED[1:]]
_DRAWN: Final = [
    *(
        "hint",
        "state",
        "created_at",
        "rotation_due_at",
        "paused_at",
        "revoked_at",
        "replaced_by",
        "last_used_at",
    ),
    *("last_used_ip", "last_used_model"),
]
_GRACE: Final = timedelta(days=1)


class KeyStateFilter(admin.SimpleListFilter):
    """Keys by what `ApiKey.state_at` says of them."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """One choice for each state."""
        return [(state.value, state.value) for state in KeyState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """The keys in the chosen state."""
        try:
            state = KeyState(self.value() or "")
        except ValueError:
            return queryset
        return queryset.filter(in_state(state, timezone.now()))


class LinesField(forms.CharField):
    """A list of texts, one on each line."""

    widget = forms.Textarea(attrs={"rows": 2, "cols": 50})

    def __init__(self, help_text: str) -> None:
        super().__init__(required=False, help_text=help_text)

    def prepare_value(self, value: Any) -> Any:
        """For the page."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """From the page."""
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """As lists."""
        return bool(list(initial or []) != self.to_python(data))


class ApiKeyForm(ScopedForm[ApiKey]):
    """A new key must not be expired at birth; one that exists may be ended this way."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices, widget=forms.CheckboxSelectMultiple, initial=usual_scopes
    )
    allowed_models = LinesField("Names, one on each line; empty allows all.")
    allowed_endpoints = LinesField("Such as chat/completions, one on each line; empty allows all.")
    allowed_networks = LinesField("Such as 10.0.0.0/8, one on each line; empty allows all.")

    def clean_expires_at(self) -> datetime | None:
        """Raises ValidationError for a new key with a time in the past."""
        expires_at: datetime | None = self.cleaned_data["expires_at"]
        if self.instance.pk is None and expires_at is not None and expires_at <= timezone.now():
            raise ValidationError("Choose a time in the future, or leave it empty.")
        return expires_at

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError for two ends, and for one that has passed."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            values = {name: cleaned.get(name) for name in _ENDS}
            if self.instance.pk is None:
                rotation.expiry_of_new(values, timezone.now())
            else:
                stored = ApiKey.objects.get(pk=self.instance.pk)
                rotation.with_expiry(stored, values, timezone.now())
        return cleaned

    def _post_clean(self) -> None:
        """A new key is for who may have one in its project."""
        super()._post_clean()
        key = self.instance
        if self.errors or key.pk is not None:
            return
        if not Access.of(key.owner).may(Action.MANAGE, key):
            words = f"{key.owner} is not a {Role.MEMBER} of {key.project}."
            self.add_error("owner", ValidationError(words))


@admin.register(ApiKey)
class ApiKeyAdmin(ScopedAdmin[ApiKey]):
    """Makes keys, shows their secrets once, and follows them to their end."""

    form = ApiKeyForm
    empty_text = "No key yet. Add one: programs send it with each request."
    list_display = [
        *(
            "name",
            "owner",
            "project",
            "hint",
            "state",
            "created_at",
            "expires_at",
            "rotation_due_at",
        ),
        "last_used_at",
    ]
    list_filter = [KeyStateFilter, ("project", SeenFilter), "created_at", "last_used_at"]
    list_select_related = ["owner", "project__organization"]
    search_fields = ["name", "hint", "owner__username"]
    autocomplete_fields = ["owner", "project"]
    ordering = ["-created_at", "-id"]
    actions = ["pause", "resume", "rotate", "revoke"]

    @admin.display(description="to be rotated")
    def rotation_due_at(self, key: ApiKey) -> str | SafeString:
        """When, and whether that has passed."""
        due_at = key.rotation_due_at
        if due_at is None:
            return "at no time"
        is_overdue = key.is_rotation_overdue(timezone.now())
        return f"{due_at:%Y-%m-%d %H:%M} UTC{', overdue' if is_overdue else ''}"

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        """Whether the key opens the door now."""
        state = key.state_at(timezone.now())
        return format_html(
            '<span class="state state-{}">{}</span>', slugify(state), state.capitalize()
        )

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """A new key is a few answers; the rest is drawn."""
        return _CHOSEN if obj is None else [*_CHOSEN, *_DRAWN]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        """A key stays its owner's, in its project."""
        return [] if obj is None else ["owner", "project", *_DRAWN]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Most people make keys for themselves, and most installations have one project."""
        project = access_of(request).projects_seen().order_by("id").first()
        usual = {"owner": request.user.pk, "project": project and project.pk}
        return {**usual, **super().get_changeform_initial_data(request)}

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Others revoke: a deleted key cannot be told from one that never was."""
        return bool(request.user.is_superuser)

    def save_model(
        self,
        request: HttpRequest,
        obj: ApiKey,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """Save the key; of a new one, show the secret."""
        if change:
            change_key(obj, **{name: getattr(obj, name) for name in _CHANGED})
            return
        new = create_key(
            owner=obj.owner,
            project=obj.project,
            name=obj.name,
            expires_at=obj.expires_at,
            scopes=obj.scopes,
            allowed_models=obj.allowed_models,
            allowed_endpoints=obj.allowed_endpoints,
            allowed_networks=obj.allowed_networks,
            rotate_every_days=obj.rotate_every_days,
            rotation_grace_days=obj.rotation_grace_days,
        )
        # The admin goes on with the object of its form.
        obj.pk = new.key.pk
        obj.refresh_from_db()
        _show(request, new.secret, "the new key")

    @admin.action(description="Pause selected keys", permissions=["change"])
    def pause(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Stop the keys until they are resumed."""
        self._do(request, keys.filter(paused_at=None), pause_key, "paused", Action.STOP)

    @admin.action(description="Resume selected keys", permissions=["change"])
    def resume(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Let paused keys open the door again."""
        paused = keys.filter(paused_at__isnull=False)
        self._do(request, paused, resume_key, "resumed", Action.RESUME)

    @admin.action(description="Revoke selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Stop the keys, for good."""
        self._do(request, keys, revoke_key, "revoked", Action.STOP)

    @admin.action(
        description="Rotate selected keys: the old ones work for a day more",
        permissions=["change"],
    )
    def rotate(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Replace the keys, and show the new secrets."""
        access = access_of(request)

        def replace(key: ApiKey) -> None:
            if not access.may_act_as(key):
                raise ValueError("Its owner may do more than you.")
            _show(request, rotate_key(key, grace=_GRACE).secret, f"the key that replaces {key}")

        self._do(request, keys, replace, "rotated", Action.MANAGE)

    def _do(
        self,
        request: HttpRequest,
        keys: QuerySet[ApiKey],
        act: Callable[[ApiKey], object],
        done: str,
        action: Action,
    ) -> None:
        access, num_done = access_of(request), 0
        for key in keys.filter(revoked_at=None).select_related("owner", "project__organization"):
            try:
                if not access.may(action, key):
                    raise ValueError("Your role does not allow this.")
                act(key)
            except ValueError as error:
                messages.error(request, f"{key}: {error}")
                continue
            num_done += 1
            self.log_change(request, key, f"{done.capitalize()}.")
        messages.success(request, f"{num_done} of the selected keys {done}.")


def _show(request: HttpRequest, secret: str, what: str) -> None:
    messages.warning(
        request,
        format_html("Copy {} now, it cannot be shown again: <code>{}</code>", what, secret),
    )
