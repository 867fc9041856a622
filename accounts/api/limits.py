"""Limits, and what tokens of a model weigh in budgets."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from accounts.api.base import Changes, Makes, Removes
from accounts.api.organizations import fixed
from accounts.api.wire import (
    MAX_ID,
    Filters,
    StrictModel,
    choice_filter,
    switch_filter,
    text_filter,
)
from accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from accounts.console.owners import OWNERS
from accounts.models import Limit, LimitScope, ModelWeight
from accounts.models.alerts import check_percents


class LimitBody(StrictModel):
    """At most `amount` of a metric, in a window, for a scope."""

    scope_id = serializers.IntegerField(
        default=0, min_value=0, max_value=MAX_ID, help_text="0 for models and the platform."
    )
    amount = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    alert_at = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=100),
        required=False,
        allow_null=True,
        max_length=10,
        validators=[check_percents],
        help_text="Percentages of a quota at which people are told, the smallest first; null: "
        "those of the platform, []: none.",
    )

    class Meta:
        model = Limit
        fields = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *("week_start", "is_shadow", "alert_at", "created_at", "updated_at"),
        ]
        read_only_fields = ["created_at", "updated_at"]
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> Any:
        """What is counted stays: another count is another limit."""
        kind = ("scope", "scope_id", "model", "metric", "window")
        return fixed(super().get_fields(), self, *kind)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Raises ValidationError for a limit of what is not there, or not for the caller."""
        scope, scope_id = values.get("scope", ""), values.get("scope_id")
        if scope in OWNERS and scope_id:
            rows = self.context["view"].access.rows(OWNERS[scope])
            if not rows.filter(pk=scope_id).exists():
                told = f"There is no {scope} of this id, or not for you."
                raise serializers.ValidationError({"scope_id": told})
        return values


class LimitFilters(Filters):
    """Which limits."""

    scope = choice_filter(LimitScope.choices, "Only of this scope.")
    scope_id = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_ID, help_text="Of this one."
    )
    model = text_filter("Of this model.")
    metric = choice_filter(METRIC_CHOICES, "Only of this metric.")
    window = choice_filter(WINDOW_CHOICES, "Only in this window.")
    is_shadow = switch_filter("Only those that refuse nothing, or only the others.")


class Limits(Makes, Changes, Removes):
    """Limits on keys, users, projects, organisations, models and the platform, all of which
    hold together. They are set from above: those of a project by admins of its organisation,
    those of organisations, models and the platform by its administrators."""

    model = Limit
    serializer_class = LimitBody
    filters = LimitFilters
    ordering = ("scope", "scope_id", "model", "metric", "window")
    words = ("a limit", "limits")


class ModelWeightBody(StrictModel):
    """What tokens of a model count for in budgets."""

    class Meta:
        model = ModelWeight
        fields = ["id", "model", "uncached", "cached", "output", "image", "updated_at"]
        read_only_fields = ["updated_at"]

    def get_fields(self) -> Any:
        """Weights change, the model does not."""
        return fixed(super().get_fields(), self, "model")


class ModelWeightFilters(Filters):
    """Which weights."""

    model = text_filter("Of this model.")


class ModelWeights(Makes, Changes, Removes):
    """Weights of tokens in budgets. A model without a row counts 1 for each token."""

    model = ModelWeight
    serializer_class = ModelWeightBody
    filters = ModelWeightFilters
    ordering = ("model",)
    words = ("the weights of a model", "weights of models")
