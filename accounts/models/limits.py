"""What may be used, by whom, in which time; and what a token of a model weighs."""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models

from accounts.base.limit_table import (
    MAX_WEIGHT,
    METRIC_CHOICES,
    WEEKDAY_CHOICES,
    WINDOW_CHOICES,
    Kind,
    Metric,
    Weekday,
    Window,
)
from accounts.base.timestamps import Stamped, StampedQuerySet
from accounts.models.alerts import check_percents


class LimitScope(models.TextChoices):
    """Whose use is counted."""

    PLATFORM = "platform", "the whole platform"
    ORGANIZATION = "organization", "an organisation"
    PROJECT = "project", "a project"
    USER = "user", "a user"
    KEY = "key", "a key"
    MODEL = "model", "a model"


# Python reads them from hundreds of files, each time.
_time_zones = cache(available_timezones)


def check_time_zone(name: str) -> None:
    """Raises ValidationError for a zone that does not exist."""
    if name not in _time_zones():
        raise ValidationError(f"There is no time zone {name}. They look like Europe/Berlin.")


class Limit(Stamped):
    """At most `amount` of a metric, in a window, for a scope.

    The scope is an id of the table that its kind names; a model has a name instead, and the
    platform neither.
    """

    scope = models.CharField(max_length=16, choices=LimitScope.choices)
    scope_id = models.PositiveBigIntegerField(
        default=0, blank=True, help_text="0 for models and the platform."
    )
    model = models.CharField(
        max_length=255, blank=True, default="", help_text="The name of the model, for its limits."
    )
    metric = models.CharField(max_length=16, choices=METRIC_CHOICES)
    window = models.CharField(max_length=8, choices=WINDOW_CHOICES)
    amount = models.PositiveBigIntegerField(validators=[MinValueValidator(1)])
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        validators=[check_time_zone],
        help_text="In which days, weeks and months begin.",
    )
    week_start = models.CharField(
        max_length=9,
        choices=WEEKDAY_CHOICES,
        default=Weekday.MONDAY.value,
        help_text="The first day of a week; monday for limits of another window.",
    )
    is_shadow = models.BooleanField(
        "shadow", default=False, help_text="Only count what would have been refused."
    )
    alert_at = models.JSONField(
        null=True,
        blank=True,
        validators=[check_percents],
        help_text="Percentages of a quota at which people are told, such as [50, 80, 100]; "
        "empty: those of the platform, []: none.",
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    objects = StampedQuerySet.as_manager()

    class Meta:
        ordering = ["scope", "scope_id", "model", "metric", "window"]
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "scope_id", "model", "metric", "window"],
                name="one_limit_of_a_kind",
                violation_error_message="There is such a limit already: change its amount.",
            ),
        ]

    def __str__(self) -> str:
        return self.told_for(str(self.scope_id or self.model))

    def told_for(self, name: str) -> str:
        """In words, for whom is known by this name."""
        whose = f"{self.scope} {name}".strip()
        return f"{self.amount} {self.get_metric_display()} {self.get_window_display()}, {whose}"

    def clean(self) -> None:
        """Raises ValidationError for fields that do not go together."""
        is_concurrency = self.metric == Metric.CONCURRENCY
        has_no_window = self.window == Window.NONE
        if is_concurrency and not has_no_window:
            raise ValidationError({"window": "Requests at the same time are counted at any time."})
        if has_no_window and not is_concurrency and self.metric != Metric.WEIGHTED_TOKENS:
            names = ", ".join(each.value for each in Window if each is not Window.NONE)
            raise ValidationError({"window": f"Choose one of these windows: {names}."})
        if self.window != Window.WEEK and self.week_start != Weekday.MONDAY:
            raise ValidationError(
                {"week_start": "Only a limit of a week has a first day: leave it at Monday."}
            )
        is_bucket = self.window in set(Window) and Window(self.window).kind is Kind.BUCKET
        if self.alert_at and (is_concurrency or is_bucket):
            raise ValidationError(
                {
                    "alert_at": "There are alerts for quotas only, which are limits of a day or "
                    "longer: leave this out."
                }
            )
        needs_id = self.scope not in (LimitScope.PLATFORM, LimitScope.MODEL)
        if needs_id != bool(self.scope_id):
            raise ValidationError({"scope_id": f"A limit of {self.get_scope_display()}: whose?"})
        if (self.scope == LimitScope.MODEL) != bool(self.model):
            raise ValidationError(
                {"model": "Name the model for a limit of a model, and only then."}
            )


class ModelWeight(Stamped):
    """What tokens of a model count for in budgets; a model without a row counts 1 for each."""

    model = models.CharField(max_length=255, unique=True)
    uncached = models.FloatField(
        "of a prompt's token", default=1, validators=[MinValueValidator(0)]
    )
    cached = models.FloatField("of a cached one", default=1, validators=[MinValueValidator(0)])
    output = models.FloatField("of an output token", default=1, validators=[MinValueValidator(0)])
    image = models.FloatField("of an image's token", default=1, validators=[MinValueValidator(0)])

    objects = StampedQuerySet.as_manager()

    class Meta:
        verbose_name = "token weight"
        ordering = ["model"]

    def __str__(self) -> str:
        return self.model

    def clean(self) -> None:
        """Raises ValidationError for a weight that no budget can be counted with."""
        for name in ("uncached", "cached", "output", "image"):
            weight = getattr(self, name)
            if isinstance(weight, float | int) and not weight <= MAX_WEIGHT:  # as is NaN
                raise ValidationError({name: f"Give a weight from 0 to {MAX_WEIGHT}."})
