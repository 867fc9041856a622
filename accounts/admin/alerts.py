"""Alerts, reminders and webhooks in Django's admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.admin.scoped import ReadOnly, ScopedAdmin
from accounts.alerts import webhooks
from accounts.models import Alert, Delivery, KeyReminder, Webhook


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
    actions = ["rotate_secrets", "rotate_secrets_at_once"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """And whether the secret before the last rotation is still good."""
        return self.fields if obj is None else [*self.fields, "previous_secret_until"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """A webhook stays in its organisation."""
        return [] if obj is None else ["organization", "previous_secret_until"]

    @admin.action(
        description="Rotate selected secrets: the old ones sign, too, for a day",
        permissions=["change"],
    )
    def rotate_secrets(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        """So that receivers have time to be changed."""
        self._rotate(request, rows, webhooks.USUAL_GRACE)

    @admin.action(
        description="Rotate selected secrets: the old ones end at once", permissions=["change"]
    )
    def rotate_secrets_at_once(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        """For those that somebody else knows."""
        self._rotate(request, rows, timedelta(0))

    def _rotate(self, request: HttpRequest, rows: QuerySet[Webhook], grace: timedelta) -> None:
        for webhook in rows:
            if not self._may(request, webhook):
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
        """The secret of a new one is shown once."""
        if change:
            super().save_model(request, obj, form, change)
            return
        secret = webhooks.new_secret()
        obj.secret = webhooks.encrypt_secret(secret)
        super().save_model(request, obj, form, change)
        _show(request, secret, obj)


def _show(request: HttpRequest, secret: str, webhook: Webhook) -> None:
    messages.warning(request, f"Copy the secret of {webhook} now, it is not shown again: {secret}")


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
        """Whoever sees what it is about."""
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


@admin.register(KeyReminder)
class KeyReminderAdmin(ReadOnly):
    """Keys that were about to end."""

    empty_text = "No key has been about to end yet."
    inlines = [DeliveryInline]
    list_display = [
        *("created_at", "key_name", "hint", "owner_name", "project_name", "event", "happens_at"),
        "days_before",
    ]
    list_filter = ["event", "days_before", "created_at"]
    search_fields = ["key_name", "hint", "owner_name", "project_name"]
    ordering = ["-created_at", "-id"]
