"""Usage rows in Django's admin: to be read, added up, and never changed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Count, Sum
from django.http import HttpRequest

from accounts.admin.usage_filters import EndpointFilter, ModelFilter, PeriodFilter
from accounts.models import UsageRecord


class TotalsPaginator(Paginator):  # type: ignore[type-arg]
    """Counts the filtered rows and adds up their tokens in one query."""

    @cached_property
    def totals(self) -> dict[str, int]:
        """Of all pages. Sums of nothing are 0."""
        rows: Any = self.object_list
        sums: dict[str, int] = rows.aggregate(
            num_requests=Count("id"),
            num_prompt_tokens=Sum("num_prompt_tokens", default=0),
            num_cached_tokens=Sum("num_cached_tokens", default=0),
            num_output_tokens=Sum("num_output_tokens", default=0),
            num_reasoning_tokens=Sum("num_reasoning_tokens", default=0),
        )
        return sums

    @property
    def count(self) -> int:
        """All rows of all pages."""
        return self.totals["num_requests"]


@admin.register(UsageRecord)
class UsageRecordAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A table with totals. The rows are the books: nobody edits them."""

    change_list_template = "admin/accounts/usagerecord/change_list.html"
    list_display = [
        "created_at",
        "username",
        "key_name",
        "model",
        "endpoint",
        "outcome",
        "http_status",
        "num_prompt_tokens",
        "num_cached_tokens",
        "num_output_tokens",
        "first_token_ms",
        "total_ms",
    ]
    list_filter = [PeriodFilter, ModelFilter, EndpointFilter, "outcome", "is_streamed"]
    search_fields = ["request_id__exact", "username", "key_name", "error_code"]
    search_help_text = "Request id, or a part of the user, key or error code."
    ordering = ["-created_at", "-id"]
    paginator = TotalsPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Only requests make rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: UsageRecord | None = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: UsageRecord | None = None) -> bool:
        """Nobody."""
        return False
