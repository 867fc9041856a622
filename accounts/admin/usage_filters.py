"""Filters for a usage table that may hold millions of rows: none reads all of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import UsageRecord

Choices = list[tuple[str, str]]


class PeriodFilter(admin.SimpleListFilter):
    """When the request arrived. A day unless asked: years of rows are slow to add up."""

    title = "period"
    parameter_name = "period"
    _HOURS = {"hour": 1, "": 24, "week": 24 * 7, "month": 24 * 30}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """All but the default, which is the choice of no value."""
        return [
            ("hour", "last hour"),
            ("week", "last 7 days"),
            ("month", "last 30 days"),
            ("all", "all"),
        ]

    def choices(self, changelist: Any) -> Any:
        """As Django's, with the word for no value."""
        for number, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "last 24 hours"} if number == 0 else choice

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[UsageRecord]
    ) -> QuerySet[UsageRecord]:
        """The rows of the period."""
        hours = self._HOURS.get(self.value() or "")
        if hours is None:
            return queryset
        return queryset.filter(created_at__gte=timezone.now() - timedelta(hours=hours))


class RecentValuesFilter(admin.SimpleListFilter):
    """The values of a column in the newest rows: all distinct ones of a large table would
    take a scan of it for every page."""

    parameter_name: str  # the column's name
    _NUM_ROWS = 1000

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """The values in rows that may be seen, sorted; a chosen one stays even when it has
        become rare."""
        seen = model_admin.get_queryset(request)
        newest = seen.order_by("-created_at", "-id")[: self._NUM_ROWS]
        values = set(newest.values_list(self.parameter_name, flat=True))
        chosen = request.GET.get(self.parameter_name)
        return [(value, value) for value in sorted(values | ({chosen} if chosen else set()))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[UsageRecord]
    ) -> QuerySet[UsageRecord]:
        """The rows with the chosen value."""
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.parameter_name: value})


class ModelFilter(RecentValuesFilter):
    """By the model that answered."""

    title = "model"
    parameter_name = "model"


class EndpointFilter(RecentValuesFilter):
    """By the door that the request came in by."""

    title = "endpoint"
    parameter_name = "endpoint"
