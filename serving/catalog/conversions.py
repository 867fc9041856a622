"""Asks for conversions: a checkpoint becomes the folder of a model, which is added if it is new."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from vinery_accounts.services import changes
from vinery_serving.catalog import job_requests
from vinery_serving.catalog.jobs import JobKind, ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.convert.checkpoint import Checkpoint
from vinery_serving.convert.errors import ConvertError
from vinery_serving.convert.options import parse


def begin(
    source: Path, name: str, values: Mapping[str, Any], *, device: str = "CPU", load: bool = True
) -> ModelJob:
    """Ask the node to convert a checkpoint for the model `name`. A model that has a folder serves
    from it until the new one is ready. `values` are those of `ConvertOptions`.

    Raises ValidationError for a checkpoint or options with which no conversion can begin.
    """
    folder = source.expanduser().resolve()
    try:
        options = parse(dict(values))
        Checkpoint.read(folder, options.task)
    except ConvertError as error:
        raise ValidationError(str(error)) from error
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first() or _added(name, device, load)
        parameters = {"source": str(folder), **values}
        return job_requests.begin(model, JobKind.CONVERT, parameters)


def _added(name: str, device: str, load: bool) -> ServedModel:  # noqa: FBT001
    model = ServedModel(name=name, folder="", device=device, is_loaded=load)
    model.awaits_folder = True
    return changes.add(model)
