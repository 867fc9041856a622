"""API keys in Django's admin: made, shown once, renamed, revoked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from accounts.keys import create_key
from accounts.models import ApiKey, KeyState

_CHOSEN = ["name", "owner", "expires_at"]
_DRAWN = ["hint", "state", "created_at", "revoked_at", "last_used_at"]


class KeyStateFilter(admin.SimpleListFilter):
    """Keys by what `ApiKey.state_at` says of them."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """One choice for each state."""
        return [(state.value, state.value) for state in KeyState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """The keys in the chosen state."""
        revoked = Q(revoked_at__isnull=False)
        expired = Q(expires_at__lte=timezone.now())
        match self.value():
            case KeyState.REVOKED:
                return queryset.filter(revoked)
            case KeyState.EXPIRED:
                return queryset.filter(expired & ~revoked)
            case KeyState.OWNER_INACTIVE:
                return queryset.filter(~revoked & ~expired, owner__is_active=False)
            case KeyState.ACTIVE:
                return queryset.filter(~revoked & ~expired, owner__is_active=True)
        return queryset


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new key must not be expired at birth; one that exists may be ended this way."""

    def clean_expires_at(self) -> datetime | None:
        """Raises ValidationError for a new key with a time in the past."""
        expires_at: datetime | None = self.cleaned_data["expires_at"]
        if self.instance.pk is None and expires_at is not None and expires_at <= timezone.now():
            raise ValidationError("Choose a time in the future, or leave it empty.")
        return expires_at


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Makes keys, shows the secret once, and revokes them."""

    form = ApiKeyForm
    empty_text = "No key yet. Add one: programs send it with each request."
    list_display = [
        "name",
        "owner",
        "hint",
        "state",
        "created_at",
        "expires_at",
        "last_used_at",
    ]
    list_filter = [KeyStateFilter, "created_at", "last_used_at"]
    list_select_related = ["owner", "project__organization"]
    search_fields = ["name", "hint", "owner__username"]
    autocomplete_fields = ["owner"]
    ordering = ["-created_at", "-id"]
    actions = ["revoke"]

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        """Whether the key opens the door now."""
        state = key.state_at(timezone.now())
        return format_html(
            '<span class="state state-{}">{}</span>', slugify(state), state.capitalize()
        )

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """A new key is three answers; the rest is drawn."""
        return _CHOSEN if obj is None else [*_CHOSEN, *_DRAWN]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        """Afterwards only name and expiry change."""
        return [] if obj is None else ["owner", *_DRAWN]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Most people make keys for themselves."""
        return {"owner": request.user.pk, **super().get_changeform_initial_data(request)}

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
            obj.save(update_fields=["name", "expires_at"])
            return
        new = create_key(owner=obj.owner, name=obj.name, expires_at=obj.expires_at)
        # The admin goes on with the object of its form.
        obj.pk = new.key.pk
        obj.refresh_from_db()
        messages.warning(
            request,
            format_html(
                "Copy the new key now, it cannot be shown again: <code>{}</code>",
                new.secret,
            ),
        )

    @admin.action(description="Revoke selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """Stop the keys, for good."""
        fresh = list(keys.filter(revoked_at=None))
        num_revoked = ApiKey.objects.filter(pk__in=[key.pk for key in fresh]).revoke()
        for key in fresh:
            self.log_change(request, key, "Revoked.")
        messages.success(request, f"{num_revoked} of the selected keys revoked.")
