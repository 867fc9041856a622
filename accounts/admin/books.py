"""Refused requests and the audit log in Django's admin: to be read."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.admin.scoped import ReadOnly
from accounts.models import AuditEntry, RefusedRequest
from accounts.services import audit
from accounts.usage.effects import Effect, with_effect


@admin.register(RefusedRequest)
class RefusedRequestAdmin(ReadOnly):
    """Why a limit refused a request or cut it short, or would have."""

    empty_text = "No request was refused by a limit."
    list_display = [
        *("created_at", "username", "key_name", "project_name", "model", "scope", "metric"),
        *("window", "amount", "level", "needed", "wait_s", "effect"),
    ]
    list_filter = ["metric", "window", "is_shadow", "created_at"]
    search_fields = ["request_id__exact", "username", "key_name", "scope"]
    ordering = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_queryset(self, request: HttpRequest) -> QuerySet[RefusedRequest]:
        """With what the limit did."""
        return with_effect(super().get_queryset(request))

    @admin.display(description="effect")
    def effect(self, row: Any) -> str:
        """Whether the request was refused, cut short, or only counted."""
        return Effect(row.effect).label if row.effect else "-"


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    """What was done by whom."""

    empty_text = "Nothing was changed yet."
    list_display = ["number", "created_at", "actor", "action", "target", "changed", "ip"]
    list_filter = ["target_kind", "created_at"]
    search_fields = ["actor", "action", "target"]
    search_help_text = "A part of who, what, what to, or what was before or after; or an address."
    ordering = ["-number"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    @admin.display(description="changed")
    def changed(self, entry: AuditEntry) -> SafeString:
        """Before and after, of what differs."""
        return format_html(
            '<small title="{}">{}</small>',
            json.dumps({"before": entry.before, "after": entry.after}),
            ", ".join(entry.after or entry.before or {}) or "-",
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """As the API and the command search."""
        return (audit.search(queryset, search_term) if search_term else queryset), False
