"""Asks for measurements of models, and for better options of them."""

from typing import Final

from django.core.exceptions import ValidationError

from vinery_accounts.services import changes
from vinery_serving.catalog import job_requests
from vinery_serving.catalog.engine_status import ShownState
from vinery_serving.catalog.jobs import JobKind, JobState, ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.core.tasks import Task, explanation

# The states of models that can be measured.
MEASURABLE: Final = (ShownState.READY, ShownState.ASLEEP)


def begin(model: ServedModel) -> ModelJob:
    """Ask the node to measure a model, which wakes if it is asleep. Raises ValidationError for a
    model that cannot answer now."""
    _check_task(model)
    if model.shown_state not in MEASURABLE:
        raise ValidationError(
            f"{model} is {model.state_text}: load it, wait until it is ready, and measure it then."
        )
    parameters = {
        "model_id": model.pk,
        "settings_digest": model.settings_digest,
        "folder": model.folder,
        "device": model.device,
        "options": model.options,
    }
    return job_requests.begin(model, JobKind.BENCH, parameters)


def begin_tuning(
    model: ServedModel, *, time_limit_s: float, allow_other_answers: bool = False
) -> ModelJob:
    """Ask the node to look for better engine options, in engines beside the one that serves.
    Raises ValidationError for a model without a folder."""
    _check_task(model)
    if not model.folder:
        raise ValidationError(f"{model} has no folder yet: it is {model.state_text}.")
    parameters = {
        "folder": model.folder,
        "device": model.device,
        "options": model.options,
        "max_context": model.status.max_context,
        "time_limit_s": time_limit_s,
        "allow_other_answers": allow_other_answers,
    }
    return job_requests.begin(model, JobKind.TUNE, parameters)


def apply_tuning(model: ServedModel) -> ServedModel:
    """Set the best options that the last tuning has found. Raises ValidationError without one, or
    if the model has other options or another folder than it had then."""
    tunings = ModelJob.objects.filter(model=model, kind=JobKind.TUNE, state=JobState.DONE)
    job = tunings.first()
    if job is None:
        raise ValidationError(f"{model} has not been tuned yet. See: vinery model tune --help")
    if has_changed_since(model, job):
        raise ValidationError(f"{model} has changed since it was tuned. Tune it again.")
    return changes.change(model, "apply-tuning", options=job.result["best"])


def _check_task(model: ServedModel) -> None:
    """Raises ValidationError for a model that generates no tokens."""
    task = Task(model.task)
    if not task.is_generation:
        raise ValidationError(
            f"{model} {explanation(task)}. Speed is measured of models that generate text."
        )


def has_changed_since(model: ServedModel, tuning: ModelJob) -> bool:
    """Whether the model has other options, another device or another folder than a tuning had."""
    asked = tuning.parameters
    present = (model.folder, model.device, model.options)
    return (asked["folder"], asked["device"], asked["options"]) != present
