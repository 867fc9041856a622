"""Limits, and the weights of tokens in budgets."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from rest_framework import serializers

from accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from accounts.models import OWNERS, Limit, LimitScope, ModelWeight
from accounts.models.limits import check_percents
from accounts.resources.base import Resource
from accounts.resources.fields import (
    MAX_ID,
    Filters,
    StrictModelSerializer,
    choice_filter,
    switch_filter,
    text_filter,
)

KIND: Final = ("scope", "scope_id", "model", "metric", "window")
"""The fields that identify a limit: another kind is another limit."""


class LimitSerializer(StrictModelSerializer):
    """At most `amount` of a metric, in a window, for a scope."""

    scope_id = serializers.IntegerField(
        default=0, min_value=0, max_value=MAX_ID, help_text="0 for models and the platform."
    )
    amount = serializers.IntegerField(
        min_value=1, max_value=MAX_ID, help_text="The largest amount in the window."
    )
    alert_at = serializers.ListField(
        label="Alerts at",
        child=serializers.IntegerField(min_value=1, max_value=100),
        required=False,
        allow_null=True,
        max_length=10,
        validators=[check_percents],
        help_text="Percentages of a quota at which an alert is sent, in rising order; null: "
        "those of the platform, []: none.",
    )

    class Meta:
        model = Limit
        fields: ClassVar[list[str]] = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *("week_start", "is_shadow", "alert_at", "created_at", "updated_at"),
        ]
        read_only_fields: ClassVar[list[str]] = ["created_at", "updated_at"]
        validators: ClassVar[list[Any]] = []
        fixed = KIND
        extra_kwargs: ClassVar[dict[str, dict[str, str]]] = {
            "model": {"help_text": "The name of the model, for a limit of a model."},
            "time_zone": {
                "help_text": "In which days, weeks and months begin, such as Europe/Berlin.",
            },
            "week_start": {
                "label": "Weeks begin on",
                "help_text": "The first day of a week; monday for limits of another window.",
            },
            "is_shadow": {
                "label": "Shadow",
                "help_text": "Refuse nothing, only count what would have been refused.",
            },
        }

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Raise ValidationError for an owner that does not exist, or not for the caller."""
        scope, scope_id = values.get("scope", ""), values.get("scope_id")
        owners = OWNERS.get(scope) if scope_id else None
        if owners and not self.context["access"].rows(owners).filter(pk=scope_id).exists():
            text = f"There is no {scope} of this id, or not for you."
            raise serializers.ValidationError({"scope_id": text})
        return values


class LimitFilters(Filters):
    """Which limits."""

    scope = choice_filter(LimitScope.choices, "Only of this scope.")
    scope_id = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_ID, help_text="Only of the owner with this id."
    )
    model = text_filter("Only of this model.")
    metric = choice_filter(METRIC_CHOICES, "Only of this metric.")
    window = choice_filter(WINDOW_CHOICES, "Only in this window.")
    is_shadow = switch_filter("Only shadow limits, or only the others.")


class Limits(Resource[Limit]):
    """Limits on keys, users, projects, organisations, models and the platform. A request has to
    satisfy all limits that apply to it. Admins of an organisation set the limits of its projects;
    administrators of the platform set those of organisations, models and the platform."""

    model = Limit
    serializer = LimitSerializer
    filters = LimitFilters
    ordering = KIND
    one, many = "a limit", "limits"
    verbs = frozenset({"create", "change", "remove"})
    empty_text = "No limit yet: every user may use everything. Add a limit where that is too much."
    columns: ClassVar[dict[str, Any]] = {
        **{name: name for name in ("id", "scope", "whose", "metric", "window", "amount")},
        **{name: name for name in ("time_zone", "week_start")},
        "shadow": "is_shadow",
    }


LIMITS: Final = Limits()


class ModelWeightSerializer(StrictModelSerializer):
    """The weights of a model's tokens in budgets."""

    class Meta:
        model = ModelWeight
        fields: ClassVar[list[str]] = [
            *("id", "model", "uncached", "cached", "output", "image", "updated_at"),
        ]
        read_only_fields: ClassVar[list[str]] = ["updated_at"]
        fixed = ("model",)


class ModelWeightFilters(Filters):
    """Which weights."""

    model = text_filter("Only of this model.")


class ModelWeights(Resource[ModelWeight]):
    """Weights of tokens in budgets. Each token of a model without weights counts 1."""

    model = ModelWeight
    serializer = ModelWeightSerializer
    filters = ModelWeightFilters
    ordering = ("model",)
    one, many = "the weights of a model", "weights of models"
    verbs = frozenset({"create", "change", "remove"})
    empty_text = "No weights yet: each token of each model counts 1."
    columns: ClassVar[dict[str, str]] = {
        name: name for name in ("model", "uncached", "cached", "output", "image")
    }


MODEL_WEIGHTS: Final = ModelWeights()
