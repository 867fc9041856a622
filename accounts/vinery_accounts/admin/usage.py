"""Usage records in Django's admin, with the sums of the filtered records."""

from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from vinery_accounts.admin.base import ReadOnly, VisibleAdmin
from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.entries import Outcome

Choices = list[tuple[str, str]]
_SUMS: Final = (
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "num_reasoning_tokens"),
    *("num_media", "num_image_tokens", "num_video_tokens"),
)


class PeriodFilter(admin.SimpleListFilter):
    """When the request arrived. The default is a day: sums over years are slow."""

    title = parameter_name = "period"
    _DAYS = {"hour": 1 / 24, "": 1, "week": 7, "month": 30}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        names = {"hour": "last hour", "week": "last 7 days", "month": "last 30 days", "all": "all"}
        return list(names.items())

    def choices(self, changelist: Any) -> Any:
        default, *others = super().choices(changelist)
        return [{**default, "display": "last 24 hours"}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        days = self._DAYS.get(self.value() or "")
        since = timezone.now() - timedelta(days=days or 0)
        return queryset if days is None else queryset.filter(created_at__gte=since)


class RecentValuesFilter(admin.SimpleListFilter):
    """The values of a column in the newest rows: for all values a large table would be scanned."""

    parameter_name: str  # the column's name
    _NUM_ROWS = 1000

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        newest = model_admin.get_queryset(request).order_by("-created_at", "-id")[: self._NUM_ROWS]
        values = set(newest.values_list(self.parameter_name, flat=True))
        chosen = request.GET.get(self.parameter_name)
        return [(value, value) for value in sorted(values | ({chosen} if chosen else set()))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.parameter_name: value})


class ModelFilter(RecentValuesFilter):
    title = parameter_name = "model"


class EndpointFilter(RecentValuesFilter):
    title = parameter_name = "endpoint"


class MediaFilter(admin.SimpleListFilter):
    """Whether the request had pictures, videos or files."""

    title = parameter_name = "media"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("with", "with media"), ("without", "without media")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = {"with": Q(num_media__gt=0), "without": Q(num_media=0)}
        return queryset.filter(wanted.get(self.value() or "", Q()))


class TotalsPaginator(Paginator):  # type: ignore[type-arg]
    """Counts the filtered rows and adds up their tokens in one query."""

    object_list: QuerySet[UsageRecord]

    @cached_property
    def totals(self) -> dict[str, int]:
        sums = {name: Sum(name, default=0) for name in _SUMS}
        return self.object_list.aggregate(num_requests=Count("id"), **sums)

    @property
    def count(self) -> int:
        return self.totals["num_requests"]


def _column(name: str, description: str, *, is_duration: bool = False) -> Any:

    @admin.display(description=description, ordering=name)
    def column(row: UsageRecord) -> Any:
        value = getattr(row, name)
        if not is_duration:
            return value
        return "-" if value is None else f"{value:,.0f}"

    column.__name__ = name  # the admin names the cell's class after it
    return column


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnly, VisibleAdmin):
    ordering: ClassVar[Any] = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    empty_text = "No requests in the last 24 hours. A request is listed a moment after its end."
    change_list_template = "admin/accounts/usagerecord/change_list.html"
    list_display = [
        *("created_at", "caller", "model", "endpoint", "result"),
        _column("num_prompt_tokens", "tokens in"),
        _column("num_cached_tokens", "cached"),
        _column("num_output_tokens", "out"),
        "media_used",
        _column("first_token_ms", "first, ms", is_duration=True),
        _column("total_ms", "total, ms", is_duration=True),
    ]
    list_filter = [PeriodFilter, ModelFilter, EndpointFilter, "outcome", "is_streamed", MediaFilter]
    search_fields = [
        *("request_id__exact", "username", "key_name", "end_user"),
        *("error_code", "error_message"),
    ]
    search_help_text = "Request id, or part of the user, end user, key, error code or message."
    list_per_page = 50

    def get_paginator(self, request: HttpRequest, queryset: Any, *args: Any, **more: Any) -> Any:
        kind = TotalsPaginator if queryset.model is UsageRecord else Paginator
        return kind(queryset, *args, **more)

    @admin.display(description="user, key", ordering="username")
    def caller(self, row: UsageRecord) -> str:
        return ", ".join(filter(None, (row.username, row.key_name))) or "-"

    @admin.display(description="media", ordering="num_media")
    def media_used(self, row: UsageRecord) -> str:
        num_tokens = row.num_image_tokens + row.num_video_tokens
        return f"{row.num_media} ({num_tokens:,})" if row.num_media else "-"

    @admin.display(description="outcome", ordering="outcome")
    def result(self, row: UsageRecord) -> SafeString:
        return format_html(
            '<span class="state state-{}" title="{}">{} {}</span>',
            row.outcome,
            row.error_message or row.error_code,
            Outcome(row.outcome).label,
            row.http_status or "",
        )
