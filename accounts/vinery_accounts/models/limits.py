"""Limits and the token weights of models."""

from collections.abc import Mapping
from functools import cache
from math import isclose
from typing import Any, Final
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models

from vinery_accounts.base.limit_table import (
    MAX_COST,
    MAX_WEIGHT,
    METRIC_CHOICES,
    WEEKDAY_CHOICES,
    WINDOW_CHOICES,
    Kind,
    Metric,
    Weekday,
    Window,
    in_words,
)
from vinery_accounts.base.money import limited, money
from vinery_accounts.base.querysets import Stamped
from vinery_accounts.models.keys import ApiKey
from vinery_accounts.models.people import Organization, Project, User


class LimitScope(models.TextChoices):
    PLATFORM = "platform", "the whole platform"
    ORGANIZATION = "organization", "an organisation"
    PROJECT = "project", "a project"
    END_USER = "end_user", "each end user of a project"
    USER = "user", "a user"
    KEY = "key", "a key"
    MODEL = "model", "a model"


OWNERS: Final[Mapping[str, type[models.Model]]] = {
    LimitScope.ORGANIZATION.value: Organization,
    LimitScope.PROJECT.value: Project,
    LimitScope.END_USER.value: Project,
    LimitScope.USER.value: User,
    LimitScope.KEY.value: ApiKey,
}
"""What `scope_id` of a limit is a primary key of, by scope."""

# Python reads hundreds of files for each call.
_time_zones = cache(available_timezones)


def check_time_zone(name: str) -> None:
    if name not in _time_zones():
        raise ValidationError(f"There is no time zone {name}. They look like Europe/Berlin.")


def check_percents(value: Any) -> None:
    """Raises ValidationError unless the value lists at most ten percentages in rising order."""
    is_list = isinstance(value, list) and len(value) <= 10
    if not is_list or not all(type(each) is int and 1 <= each <= 100 for each in value):
        raise ValidationError("Give up to ten whole percentages from 1 to 100, such as [50, 80].")
    if sorted(set(value)) != value:
        raise ValidationError("Give each percentage once, the smallest first.")


class Currency(Stamped):
    """The currency of the whole installation: at most one row. While there is one, the weights of a
    model are its prices for a million tokens, and usage has a cost."""

    code = models.CharField(
        max_length=3,
        validators=[RegexValidator("^[A-Z]{3}$", "Give three capital letters, such as EUR.")],
        help_text="Three capital letters, such as EUR.",
    )
    created_at = models.DateTimeField("since", auto_now_add=True)

    class Meta:
        verbose_name_plural = "currencies"

    def __str__(self) -> str:
        return self.code

    @classmethod
    def current(cls) -> str:
        """Return the code; empty without a currency. One query."""
        return cls.objects.order_by("id").values_list("code", flat=True).first() or ""


class Limit(Stamped):
    """At most `amount` of a metric, in a window, for a scope. `scope_id` is a primary key of a
    table in `OWNERS`. Limits of a model have the model's name in `model` instead; a limit of the
    platform has neither."""

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
        help_text="The time zone in which days, weeks and months begin.",
    )
    week_start = models.CharField(
        max_length=9,
        choices=WEEKDAY_CHOICES,
        default=Weekday.MONDAY.value,
        help_text="The first day of a week. Limits with another window have monday.",
    )
    is_shadow = models.BooleanField(
        "shadow", default=False, help_text="Only count the requests that it would have refused."
    )
    alert_at = models.JSONField(
        null=True,
        blank=True,
        validators=[check_percents],
        help_text="Percentages of a quota at which alerts are sent, such as [50, 80, 100]; "
        "empty: the platform's percentages, []: no alerts.",
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        ordering = ["scope", "scope_id", "model", "metric", "window"]
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "scope_id", "model", "metric", "window"],
                name="one_limit_of_a_kind",
                violation_error_message="This limit exists already: change its amount.",
            )
        ]

    def __str__(self) -> str:
        return self.described_for(str(self.owner() or self.scope_id or self.model))

    def owner(self) -> models.Model | None:
        """The row that the limit applies to; None for a model, for the platform, and for a row
        that is gone."""
        table = OWNERS.get(self.scope)
        return None if table is None else table._default_manager.filter(pk=self.scope_id).first()

    def described_for(self, name: str) -> str:
        of_each = self.scope == LimitScope.END_USER
        whose = f"{'each end user of project' if of_each else self.scope} {name}".strip()
        if self.metric == Metric.COST:
            return f"{limited(self.metric, self.window, self.amount, Currency.current())}, {whose}"
        return f"{self.amount} {in_words(self.metric, self.window)}, {whose}"

    def clean(self) -> None:
        is_concurrency = self.metric == Metric.CONCURRENCY
        has_no_window = self.window == Window.NONE
        if is_concurrency and not has_no_window:
            raise ValidationError({"window": "A limit of concurrent answers has no window."})
        # A budget of an end user would be counted for ever, and their number has no end.
        of_each = self.scope == LimitScope.END_USER
        may_have_none = self.metric in (Metric.WEIGHTED_TOKENS, Metric.COST) and not of_each
        if has_no_window and not is_concurrency and not may_have_none:
            names = ", ".join(each.value for each in Window if each is not Window.NONE)
            raise ValidationError(
                {"window": f"A limit of {self.metric} needs one of these windows: {names}."}
            )
        if self.metric == Metric.COST and self.amount and self.amount > MAX_COST:
            most = money(MAX_COST, "")
            raise ValidationError({"amount": f"A limit of the cost may be at most {most}."})
        if self.window != Window.WEEK and self.week_start != Weekday.MONDAY:
            raise ValidationError(
                {"week_start": "Only limits per week have a first day: leave it at Monday."}
            )
        is_bucket = self.window in set(Window) and Window(self.window).kind is Kind.BUCKET
        if self.alert_at and (is_concurrency or is_bucket or of_each):
            raise ValidationError(
                {
                    "alert_at": "Only quotas per day, week, month or without an end have alerts, "
                    "and not those of end users: leave this out."
                }
            )
        needs_id = self.scope not in (LimitScope.PLATFORM, LimitScope.MODEL)
        if needs_id != bool(self.scope_id):
            raise ValidationError({"scope_id": f"A limit of {self.get_scope_display()}: whose?"})
        if (self.scope == LimitScope.MODEL) != bool(self.model):
            raise ValidationError(
                {"model": "Name the model for a limit of a model, and only then."}
            )


def _weight_field(of: str) -> "models.FloatField[float, float]":
    text = "Of a token; with a currency, the price of a million. 0 to 100,000, in steps of 0.001."
    return models.FloatField(of, default=1, validators=[MinValueValidator(0)], help_text=text)


class ModelWeight(Stamped):
    """The weights of a model's tokens. Each token of a model without a row weighs 1."""

    model = models.CharField(max_length=255, unique=True)
    uncached = _weight_field("input")
    cached = _weight_field("cached input")
    output = _weight_field("output")
    image = _weight_field("image input")

    class Meta:
        verbose_name = "token weight"
        ordering = ["model"]

    def __str__(self) -> str:
        return self.model

    def clean(self) -> None:
        for name in ("uncached", "cached", "output", "image"):
            weight = getattr(self, name)
            if not isinstance(weight, float | int):
                continue
            if not weight <= MAX_WEIGHT:  # as is NaN
                raise ValidationError({name: f"Give a weight from 0 to {MAX_WEIGHT:,}."})
            if not isclose(weight, round(weight, 3), rel_tol=1e-12):
                raise ValidationError({name: "Give at most three decimals: 0.001 is the least."})
