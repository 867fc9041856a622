"""Other names of models as a resource, and what goes by the name of a model."""

from typing import Final

from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.models import ApiKey, Limit, ModelWeight
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import PlatformResource, columns_of
from vinery_accounts.resources.fields import Filters, StrictModelSerializer
from vinery_serving.models.aliases import ModelAlias


class ModelAliasSerializer(StrictModelSerializer):
    """Another name for one model or several."""

    targets = serializers.JSONField(
        help_text='The models by their weights, such as `{"qwen-a": 90, "qwen-b": 10}`. Each '
        "request gets one of those that can answer, by chance; models with a weight of 0 answer "
        "only if no other can.",
    )

    class Meta:
        model = ModelAlias
        fields = ["id", "name", "targets", "created_at", "updated_at"]


class ModelAliases(PlatformResource[ModelAlias]):
    """Other names for models, between which the requests of a name are divided by weights. They
    are for administrators of the platform, and in force within a second. Usage, limits and the
    answer's `model` are those of the model that answers."""

    model = ModelAlias
    serializer = ModelAliasSerializer
    filters = Filters.of(name=fields.text_filter("Exactly this name."))
    ordering = search = ("name",)
    one, many = "an alias", "aliases"
    verbs = frozenset({"create", "change", "remove"})
    empty_text = "No aliases yet: clients send the names of the models themselves."
    columns = columns_of("name targets", targets=lambda row: targets_text(row.targets))


MODEL_ALIASES: Final = ModelAliases()


def targets_text(targets: dict[str, int]) -> str:
    """Return `qwen-a`, or `qwen-a 90, qwen-b 10`: the largest weight first, because PostgreSQL
    keeps no order of keys."""
    if len(targets) == 1:
        return next(iter(targets))
    by_weight = sorted(targets.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name} {weight}" for name, weight in by_weight)


# -- What goes by the name of a model, when it gets another one. Aliases follow it. All else stays
# behind: a limit counts what the usage records of its name have, and a key whose client still sends
# the old name must not silently get another one.


def follow_name(old_name: str, new_name: str) -> None:
    """Let the aliases of a model follow its new name. Each change is audited."""
    if new_name == old_name:
        return
    for alias in ModelAlias.objects.all():
        if old_name in alias.targets:
            named = (
                (new_name if name == old_name else name, weight)
                for name, weight in alias.targets.items()
            )
            changes.switch(alias, "update", targets=dict(named))


def left_behind(old_name: str, new_name: str) -> list[str]:
    """Return a warning for each kind of rows that have the old name; none without a new name."""
    if new_name == old_name:
        return []
    warnings = (
        _limits(old_name, new_name),
        _weights(old_name, new_name),
        _keys(old_name, new_name),
    )
    return [each for each in warnings if each]


def _limits(old: str, new: str) -> str:
    num = Limit.objects.filter(model=old).count()
    if num == 1:
        return f"1 limit is for {old}: it does not hold for {new}."
    return f"{num} limits are for {old}: they do not hold for {new}." if num else ""


def _weights(old: str, new: str) -> str:
    if not ModelWeight.objects.filter(model=old).exists():
        return ""
    return f"The token weights are for {old}: they do not count for {new}."


def _keys(old: str, new: str) -> str:
    lists = ApiKey.objects.filter(revoked_at=None).exclude(allowed_models=[])
    num = sum(old in names for names in lists.values_list("allowed_models", flat=True))
    if num == 1:
        return f"1 API key is allowed to use {old}: it may not use {new}."
    return f"{num} API keys are allowed to use {old}: they may not use {new}." if num else ""
