"""Aliases of models as a resource: what the management API and the commands show and change."""

from typing import Final

from django.db.models import QuerySet
from rest_framework import serializers

from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource
from vinery_accounts.resources.fields import Filters, StrictModelSerializer
from vinery_accounts.services.access import Access
from vinery_serving.catalog.aliases import ModelAlias


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


class ModelAliases(Resource[ModelAlias]):
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
    columns = {"name": lambda row: row.name, "targets": lambda row: targets_text(row.targets)}

    def rows(self, access: Access) -> QuerySet[ModelAlias]:
        rows = ModelAlias.objects.all()
        return rows if access.is_superuser else rows.none()


MODEL_ALIASES: Final = ModelAliases()


def targets_text(targets: dict[str, int]) -> str:
    """Return `qwen-a`, or `qwen-a 90, qwen-b 10`: the largest weight first, because PostgreSQL
    keeps no order of keys."""
    if len(targets) == 1:
        return next(iter(targets))
    by_weight = sorted(targets.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name} {weight}" for name, weight in by_weight)
