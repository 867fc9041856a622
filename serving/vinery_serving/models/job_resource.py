"""Jobs of models, the history of models and measured speeds as resources."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rest_framework import serializers

from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Conflict, PlatformResource, RowAction, columns_of
from vinery_accounts.resources.fields import Filters
from vinery_serving.models import job_requests
from vinery_serving.models.job_rows import Asked, JobState, ModelEvent, ModelJob, SpeedResult


class _OfModelSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    model = serializers.CharField(source="model.name", read_only=True)
    model_id = serializers.IntegerField(read_only=True)


class ModelJobSerializer(_OfModelSerializer):
    """Long work on a model."""

    left_s = serializers.FloatField(
        read_only=True,
        allow_null=True,
        help_text="How long the rest takes at the present speed; null: unknown.",
    )

    class Meta:
        model = ModelJob
        fields = [
            *("id", "model_id", "model", "kind", "parameters", "asked", "state", "stage"),
            *("done_bytes", "total_bytes", "bytes_per_s", "left_s", "result", "error"),
            *("num_attempts", "next_attempt_at", "created_at", "started_at", "ended_at"),
        ]


class ModelJobs(PlatformResource[ModelJob]):
    """Long work on models: pulling, converting and measuring. It is for administrators of the
    platform. A change is done when it is stored; `state` shows what has become of it."""

    model = ModelJob
    serializer = ModelJobSerializer
    filters = Filters.of(
        model_id=fields.id_filter("a model"),
        kind=fields.text_filter("Only of this kind: pull, convert, bench, tune or fetch."),
        state=fields.text_filter("Only in this state, such as running."),
    )
    related = ("model",)
    one, many = "a job of a model", "jobs of models"
    empty_text = "No job yet: pulling, converting and measuring models are jobs."
    actions = (
        RowAction(
            "pause",
            lambda row: job_requests.pause(_unfinished(row)),
            "Pause a job. What it has done is kept.",
            "being paused",
        ),
        RowAction(
            "resume",
            lambda row: _resumed(row),
            "Go on with a job that is paused, or begin one again that has failed.",
            "resumed",
        ),
        RowAction(
            "cancel",
            lambda row: job_requests.cancel(_unfinished(row)),
            "Cancel a job, and delete what it has made so far.",
            "being cancelled",
        ),
    )
    columns = columns_of(
        "id kind host model=model.name state=state_text progress created=created_at error",
        host=lambda row: row.parameters.get("on", ""),
        error=lambda row: row.error.partition("\n")[0],
    )


class ModelEventSerializer(_OfModelSerializer):
    """A change of a model's state."""

    class Meta:
        model = ModelEvent
        fields = ["id", "model_id", "model", "at", "state", "reason"]


class ModelEvents(PlatformResource[ModelEvent]):
    """The history of models: each change of a state, with its reason. It is for administrators of
    the platform."""

    model = ModelEvent
    serializer = ModelEventSerializer
    filters = Filters.of(model_id=fields.id_filter("a model"))
    related = ("model",)
    one, many = "a change of a state", "changes of states"
    empty_text = "No model has changed its state yet."
    columns = columns_of("at model=model.name state reason")


def _resumed(row: ModelJob) -> ModelJob:
    """Raises `Conflict` for a job that has nothing left to do."""
    if row.state == JobState.DONE:
        raise Conflict(f"The {row} is done.")
    if row.asked == Asked.CANCEL and row.is_unfinished:
        raise Conflict(f"The {row} is being cancelled. Begin another one.")
    if row.parameters.get("is_signed") and not row.is_unfinished:
        raise Conflict(
            "The end of its URL, from ? on, was deleted when the job ended. Pull the whole URL."
        )
    return job_requests.resume(row)


def _unfinished(row: ModelJob) -> ModelJob:
    """Raises `Conflict` for a job that has ended."""
    if not row.is_unfinished:
        raise Conflict(f"The {row} has ended: it is {row.state}.")
    return row


class SpeedPointSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The speed with one number of streams. Tokens per second are of all streams together."""

    streams = serializers.IntegerField()
    prompt_tokens_per_s = serializers.FloatField()
    output_tokens_per_s = serializers.FloatField()
    first_token_s = serializers.FloatField(help_text="The median.")
    memory_bytes = serializers.IntegerField(help_text="Resident memory of the engine.")


class SpeedResultSerializer(_OfModelSerializer):
    """One measurement of a model on this host."""

    points = SpeedPointSerializer(many=True, read_only=True)

    class Meta:
        model = SpeedResult
        fields = [
            *("id", "model_id", "model", "measured_at", "folder", "device", "device_name"),
            *("options", "versions", "num_prompt_tokens", "num_output_tokens"),
            *("num_other_tokens", "points"),
        ]


class SpeedResults(PlatformResource[SpeedResult]):
    """Measured speeds of models on this host, the newest first. They are for administrators of the
    platform. `POST /api/models/{id}/bench/` measures."""

    model = SpeedResult
    serializer = SpeedResultSerializer
    filters = Filters.of(model_id=fields.id_filter("a model"))
    related = ("model",)
    one, many = "a measured speed", "measured speeds"
    empty_text = "No model has been measured yet. Measure one: vinery model bench NAME"
    columns = columns_of(
        "measured=measured_at model=model.name device output_tokens_per_s prompt_tokens_per_s "
        "first_token_s other_tokens=num_other_tokens",
        output_tokens_per_s=lambda row: _texts(row, "output_tokens_per_s"),
        prompt_tokens_per_s=lambda row: _texts(row, "prompt_tokens_per_s"),
        first_token_s=lambda row: _texts(row, "first_token_s"),
    )


def _texts(row: SpeedResult, name: str) -> str:
    """Return `1: 52.1, 4: 130`: the value for each number of streams."""
    return ", ".join(f"{point['streams']}: {_number(point[name])}" for point in row.points)


def _number(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


MODEL_JOBS: Final = ModelJobs()
MODEL_EVENTS: Final = ModelEvents()
SPEED_RESULTS: Final = SpeedResults()


def trial_rows(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of trials, in the order of the trials. `result` is that of the job."""
    for trial in result["trials"]:
        gain = trial["gain"]
        yield {
            "trial": trial["what"],
            "gain": trial["error"] if gain is None else f"{gain:.2f}",
            "by_streams": ", ".join(f"{num}: {each:.2f}" for num, each in trial["gains"].items()),
            "same_answers": "-" if gain is None else f"{trial['same_answers']:.0%}",
            "kept": trial["is_kept"],
        }


def is_better(result: Mapping[str, Any]) -> bool:
    return bool(result["best"] != result["present"])


def summary(result: Mapping[str, Any]) -> str:
    text = "No trial was clearly faster than the present options."
    if is_better(result):
        options = json.dumps(result["best"])
        gain = f"{result['best_gain']:.2f} times as fast as the present ones"
        text = f"The best options are {gain}: {options}."
    if not result["is_complete"]:
        text += " The time ended before all settings were tried."
    return text
