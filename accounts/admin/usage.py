"""Usage rows in Django's admin: to be read, added up, and never changed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Count, Sum
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.admin.scoped import ReadOnly
from accounts.admin.usage_filters import EndpointFilter, ModelFilter, PeriodFilter
from accounts.models import UsageRecord
from accounts.usage.entries import Outcome


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
class UsageRecordAdmin(ReadOnly):
    """A table with totals. The rows are the books: nobody edits them."""

    empty_text = "No requests in the last 24 hours. Each is a row here, a moment after its end."
    change_list_template = "admin/accounts/usagerecord/change_list.html"
    list_display = [
        "created_at",
        "caller",
        "model",
        "endpoint",
        "result",
        "tokens_in",
        "tokens_cached",
        "tokens_out",
        "first_token",
        "total",
    ]
    list_filter = [PeriodFilter, ModelFilter, EndpointFilter, "outcome", "is_streamed"]
    search_fields = ["request_id__exact", "username", "key_name", "error_code"]
    search_help_text = "Request id, or a part of the user, key or error code."
    ordering = ["-created_at", "-id"]
    paginator = TotalsPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50

    @admin.display(description="user, key", ordering="username")
    def caller(self, row: UsageRecord) -> str:
        """Whose request it was."""
        return ", ".join(filter(None, (row.username, row.key_name))) or "-"

    @admin.display(description="outcome", ordering="outcome")
    def result(self, row: UsageRecord) -> SafeString:
        """How it ended, and the status that the client saw."""
        return format_html(
            '<span class="state state-{}">{} {}</span>',
            row.outcome,
            Outcome(row.outcome).label,
            row.http_status or "",
        )

    @admin.display(description="tokens in", ordering="num_prompt_tokens")
    def tokens_in(self, row: UsageRecord) -> int:
        """Tokens of the prompt."""
        return row.num_prompt_tokens

    @admin.display(description="cached", ordering="num_cached_tokens")
    def tokens_cached(self, row: UsageRecord) -> int:
        """Those of them that were known already."""
        return row.num_cached_tokens

    @admin.display(description="out", ordering="num_output_tokens")
    def tokens_out(self, row: UsageRecord) -> int:
        """Tokens of the answer."""
        return row.num_output_tokens

    @admin.display(description="first, ms", ordering="first_token_ms")
    def first_token(self, row: UsageRecord) -> str:
        """Milliseconds to the first token."""
        return _rounded(row.first_token_ms)

    @admin.display(description="total, ms", ordering="total_ms")
    def total(self, row: UsageRecord) -> str:
        """Milliseconds to the end."""
        return _rounded(row.total_ms)


def _rounded(duration_ms: float | None) -> str:
    return "-" if duration_ms is None else f"{duration_ms:,.0f}"
