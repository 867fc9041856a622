"""What becomes of the results of jobs. Each kind has a function that stores its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils import timezone

from vinery_serving.models.job_rows import JobKind, JobState, ModelJob
from vinery_serving.models.models import ServedModel
from vinery_serving.models.speed_rows import take_speed

TakeResult = Callable[[ModelJob, Mapping[str, Any]], None]


def take_result(job: ModelJob, result: Mapping[str, Any]) -> str:
    """Store the result and end the job. Returns what is wrong with it; empty: nothing."""
    try:
        _TAKERS[JobKind(job.kind)](job, result)
    except (ValidationError, ValueError) as error:
        return " ".join(getattr(error, "messages", [str(error)]))
    ModelJob.objects.filter(pk=job.pk).update(
        state=JobState.DONE, result=dict(result), ended_at=timezone.now(), error=""
    )
    return ""


def _take_folder(job: ModelJob, result: Mapping[str, Any]) -> None:
    """Give the model the folder that the job has made. Raises ValidationError for a folder that
    cannot be served."""
    model = ServedModel.objects.get(pk=job.model_id)
    model.folder = result["folder"]
    model.clean_fields(exclude={field.name for field in model._meta.fields} - {"folder"})
    ServedModel.objects.filter(pk=model.pk).update(
        folder=model.folder, task=model.task, updated_at=timezone.now()
    )


def _take_pull(job: ModelJob, result: Mapping[str, Any]) -> None:
    """Give the model what was pulled; a checkpoint is converted first. Raises ValidationError for a
    folder that cannot be served."""
    ServedModel.objects.filter(pk=job.model_id).update(source=result.get("source", {}))
    if "precision" not in result:
        _take_folder(job, result)
        return
    parameters = {"source": result["folder"], "precision": result["precision"]}
    conversion = ModelJob(model_id=job.model_id, kind=JobKind.CONVERT, parameters=parameters)
    conversion.full_clean()
    conversion.save()


def _keep(job: ModelJob, result: Mapping[str, Any]) -> None:
    """The row of the job has the result."""


_TAKERS: Final[Mapping[JobKind, TakeResult]] = {
    JobKind.PULL: _take_pull,
    JobKind.CONVERT: _take_folder,
    JobKind.BENCH: take_speed,
    JobKind.TUNE: _keep,
}
