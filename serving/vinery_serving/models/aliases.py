"""Other names of models: each stands for one model, or divides its requests between several."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models

# The forms of model names and of alias names.

MODEL_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
)
ALIAS_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\*?\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit. The last character "
    "may be a *, for all names that begin so.",
)
_MAX_TARGETS: Final = 20
_MAX_WEIGHT: Final = 1_000_000


class ModelAlias(models.Model):
    name = models.CharField(
        max_length=128,
        unique=True,
        error_messages={"unique": "There is an alias of this name already."},
        validators=[ALIAS_NAME],
        help_text="The name that clients send as `model`; claude-* is each name that begins so.",
    )
    targets = models.JSONField(
        help_text='The models by their weights, such as {"qwen-a": 90, "qwen-b": 10}: each '
        "request gets one of them by chance, those with a weight of 0 only if no other can answer."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "model aliases"

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Raises ValidationError, also for the name of a model, and for targets that are none."""
        super().clean_fields(exclude)
        if self.name in _served([self.name]):
            raise ValidationError({"name": "A model is served under this name."})
        try:
            _check_targets(self.targets)
        except ValueError as error:
            raise ValidationError({"targets": str(error)}) from error


def _check_targets(targets: object) -> None:
    """Raises ValueError for anything but names of served models with their weights."""
    if not isinstance(targets, dict) or not targets:
        raise ValueError('Give models with their weights, such as {"qwen-a": 90, "qwen-b": 10}.')
    if len(targets) > _MAX_TARGETS:
        raise ValueError(f"An alias has at most {_MAX_TARGETS} models.")
    served = _served(targets)
    for name, weight in targets.items():
        if name not in served:
            raise ValueError(f"No model is served under the name {name}.")
        if type(weight) is not int or not 0 <= weight <= _MAX_WEIGHT:
            raise ValueError(f"The weight of {name} must be 0 to {_MAX_WEIGHT:,}.")
    if not any(targets.values()):
        raise ValueError("At least one weight must be above 0.")


def _served(names: Iterable[str]) -> set[str]:
    # Models know aliases, and not the other way round.
    models_ = apps.get_model("serving", "ServedModel").objects.filter(name__in=names)
    return set(models_.values_list("name", flat=True))
