"""Alerts and webhooks in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest

from accounts.admin.scoped import ReadOnly, ScopedAdmin
from accounts.alerts import webhooks
from accounts.models import Alert, Delivery, Webhook


@admin.register(Webhook)
class WebhookAdmin(ScopedAdmin[Webhook]):
    """URLs that are told when a quota is nearly used up."""

    empty_text = "No webhook yet: alerts go out by e-mail alone, if there is a mail server."
    list_display = ["name", "organization", "url", "is_active", "created_at"]
    list_filter = ["is_active"]
    list_select_related = ["organization"]
    search_fields = ["name", "url"]
    ordering = ["name"]
    fields = ["organization", "name", "url", "is_active"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """A webhook stays in its organisation."""
        return [] if obj is None else ["organization"]

    def save_model(
        self,
        request: HttpRequest,
        obj: Webhook,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """The secret of a new one is shown once."""
        if change:
            super().save_model(request, obj, form, change)
            return
        secret = webhooks.new_secret()
        obj.secret = webhooks.seal(secret)
        super().save_model(request, obj, form, change)
        messages.warning(request, f"Copy the secret now, it is not shown again: {secret}")


class DeliveryInline(admin.TabularInline):  # type: ignore[type-arg]
    """Who was told."""

    model = Delivery
    fields = ["receiver", "state", "num_tries", "due_at", "sent_at", "error"]
    readonly_fields = ["receiver"]
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever sees the alert."""
        return True


@admin.register(Alert)
class AlertAdmin(ReadOnly):
    """Quotas that had reached a threshold."""

    empty_text = "No quota has reached a threshold yet."
    inlines = [DeliveryInline]
    list_display = [
        *("created_at", "percent", "scope", "whose", "metric", "window", "num_used", "amount"),
        *("resets_at", "runs_out_at", "is_shadow"),
    ]
    list_filter = ["percent", "metric", "window", "is_shadow", "created_at"]
    search_fields = ["scope", "whose"]
    ordering = ["-created_at", "-id"]
