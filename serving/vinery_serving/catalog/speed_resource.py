"""Measured speeds as a resource: what the management API and the commands show."""

from typing import Final

from django.db.models import QuerySet
from rest_framework import serializers

from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource
from vinery_accounts.resources.fields import Filters
from vinery_accounts.services.access import Access
from vinery_serving.catalog.speed import SpeedResult

_LARGE: Final = 1000


class SpeedPointSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The speed with one number of streams. Tokens per second are of all streams together."""

    streams = serializers.IntegerField()
    prompt_tokens_per_s = serializers.FloatField()
    output_tokens_per_s = serializers.FloatField()
    first_token_s = serializers.FloatField(help_text="The median.")
    memory_bytes = serializers.IntegerField(help_text="Resident memory of the engine.")


class SpeedResultSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """One measurement of a model on this host."""

    model = serializers.CharField(source="model.name", read_only=True)
    model_id = serializers.IntegerField(read_only=True)
    points = SpeedPointSerializer(many=True, read_only=True)

    class Meta:
        model = SpeedResult
        fields = [
            *("id", "model_id", "model", "measured_at", "folder", "device", "device_name"),
            *("options", "versions", "num_prompt_tokens", "num_output_tokens"),
            *("num_other_tokens", "points"),
        ]


class SpeedResults(Resource[SpeedResult]):
    """Measured speeds of models on this host, the newest first. They are for administrators of the
    platform. `POST /api/models/{id}/bench/` measures."""

    model = SpeedResult
    serializer = SpeedResultSerializer
    filters = Filters.of(model_id=fields.id_filter("a model"))
    related = ("model",)
    one, many = "a measured speed", "measured speeds"
    empty_text = "No model has been measured yet. Measure one: vinery model bench NAME"
    columns = {
        "measured": lambda row: row.measured_at,
        "model": lambda row: row.model.name,
        "device": lambda row: row.device,
        "output_tokens_per_s": lambda row: _texts(row, "output_tokens_per_s"),
        "prompt_tokens_per_s": lambda row: _texts(row, "prompt_tokens_per_s"),
        "first_token_s": lambda row: _texts(row, "first_token_s"),
        "other_tokens": lambda row: row.num_other_tokens,
    }

    def rows(self, access: Access) -> QuerySet[SpeedResult]:
        rows = SpeedResult.objects.select_related("model")
        return rows if access.is_superuser else rows.none()


def _texts(row: SpeedResult, name: str) -> str:
    """Return `1: 52.1, 4: 130`: the value for each number of streams."""
    return ", ".join(f"{point['streams']}: {_number(point[name])}" for point in row.points)


def _number(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:.0f}" if value >= _LARGE else f"{value:.3g}"


SPEED_RESULTS: Final = SpeedResults()
