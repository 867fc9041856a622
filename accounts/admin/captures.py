"""Which requests' texts are kept, in Django's admin: without the texts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.admin.scoped import ReadOnly
from accounts.models import Capture


@admin.register(Capture)
class CaptureAdmin(ReadOnly):
    """Texts are read with the API and with `vinery capture`, which say so in the log."""

    empty_text = "Nothing is kept. Projects say whether and for how long their texts are."
    list_display = [
        *("created_at", "request_id", "project_id", "expires_at", "endpoint", "num_body_bytes"),
        *("num_answer_bytes", "is_body_cut", "is_answer_cut", "is_redacted"),
    ]
    list_filter = ["created_at"]
    search_fields = ["request_id__exact"]
    ordering = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what nobody sees here."""
        return super().get_queryset(request).defer("sealed")
