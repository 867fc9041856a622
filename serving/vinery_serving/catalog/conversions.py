"""Asks for conversions: a checkpoint becomes the folder of a model, which is added if it is new."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction

from vinery_accounts.services import changes
from vinery_serving.catalog import job_requests
from vinery_serving.catalog.jobs import JobKind, JobState, ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.convert.checkpoint import Checkpoint
from vinery_serving.convert.errors import ConvertError
from vinery_serving.convert.options import parse

_MAX_CHECKPOINTS: Final = 100  # that a form suggests


def begin(
    source: Path, name: str, values: Mapping[str, Any], *, device: str = "CPU", load: bool = True
) -> ModelJob:
    """Ask the node to convert a checkpoint for the model `name`. A model that has a folder serves
    from it until the new one is ready. `values` are those of `ConvertOptions`.

    Raises ValidationError for a checkpoint (`folder`) or options with which no conversion can
    begin, by their names.
    """
    folder = source.expanduser().resolve()
    try:
        options = parse(dict(values))
        Checkpoint.read(folder, options.task)
    except ConvertError as error:
        raise ValidationError({error.option or "folder": [str(error)]}) from error
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first() or _added(name, device, load)
        parameters = {"source": str(folder), **values}
        return job_requests.begin(model, JobKind.CONVERT, parameters)


def pulled_checkpoints() -> list[str]:
    """Return the folders of checkpoints that were pulled and are still there, the newest first."""
    pulls = ModelJob.objects.filter(kind=JobKind.PULL, state=JobState.DONE)
    found = pulls.filter(result__has_key="precision").values_list("result__folder", flat=True)
    folders = dict.fromkeys(found[:_MAX_CHECKPOINTS])
    return [each for each in folders if Path(each).is_dir()]


def checkpoint_of(model: ServedModel) -> str:
    """Return the folder of the checkpoint that the model was last converted from; empty: it was
    not, is being converted, or the folder is gone."""
    job = ModelJob.objects.filter(model=model, kind=JobKind.CONVERT).first()
    if job is None or job.is_unfinished or not Path(job.parameters["source"]).is_dir():
        return ""
    return str(job.parameters["source"])


def _added(name: str, device: str, load: bool) -> ServedModel:  # noqa: FBT001
    model = ServedModel(name=name, folder="", device=device, is_loaded=load)
    model.awaits_folder = True
    return changes.add(model)
