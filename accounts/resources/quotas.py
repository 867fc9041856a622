"""Quotas: limits of a day, a week, a month or without end, with their use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.utils import timezone
from rest_framework import serializers

from accounts.alerts import quotas
from accounts.models import Limit, Scope
from accounts.resources.base import Resource
from accounts.resources.limits import KIND, LimitFilters
from accounts.services.access import Access


class QuotaSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A limit of a day, a week, a month or without end, with its use."""

    used = serializers.IntegerField(help_text="Used in the window, from the usage records.")
    left = serializers.IntegerField(help_text="0 when the quota is used up.")
    window_start = serializers.DateTimeField()
    resets_at = serializers.DateTimeField(allow_null=True, help_text="null: never.")
    runs_out_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When nothing is left at the rate of the window and the last seven days; "
        "null: the quota lasts until it resets.",
    )

    class Meta:
        model = Limit
        fields: ClassVar[list[str]] = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *("week_start", "is_shadow"),
            *("used", "left", "window_start", "resets_at", "runs_out_at"),
        ]

    def to_representation(self, instance: Any) -> Any:
        """Return the body of a `quotas.Quota`."""
        quota: quotas.Quota = instance
        names = self.Meta.fields[: self.Meta.fields.index("used")]
        times = ("window_start", "resets_at", "runs_out_at")
        return {
            **{name: getattr(quota.limit, name) for name in names},
            "used": quota.num_used,
            "left": quota.num_left,
            **{name: getattr(quota, name) for name in times},
        }


class Quotas(Resource[Limit]):
    """How much of each quota is used, when it resets and when it runs out. Quotas of the platform
    and of models are for administrators of the platform. Keys with the scope `usage` may read
    quotas, too."""

    model = Limit
    serializer = QuotaSerializer
    filters = LimitFilters
    ordering = KIND
    one, many = "a quota", "quotas"
    read_scope = Scope.USAGE.value

    def rows(self, access: Access) -> QuerySet[Limit]:
        """Return the limits whose use the caller may see."""
        return access.quotas_seen()

    def load(self, rows: Sequence[Limit]) -> Sequence[quotas.Quota]:
        """Return the quotas among these limits, with their use now."""
        return quotas.read_quotas(rows, timezone.now())


QUOTAS: Final = Quotas()
