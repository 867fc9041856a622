"""Asks for measurements of models."""

from django.core.exceptions import ValidationError

from vinery_serving.catalog import job_requests
from vinery_serving.catalog.jobs import JobKind, ModelJob
from vinery_serving.catalog.models import ServedModel, ShownState


def begin(model: ServedModel) -> ModelJob:
    """Ask the node to measure a model. Raises ValidationError unless an engine serves it."""
    if model.shown_state is not ShownState.READY:
        raise ValidationError(
            f"{model} is {model.state_text}: load it, wait until it is ready, and measure it then."
        )
    parameters = {
        "model_id": model.pk,
        "folder": model.folder,
        "device": model.device,
        "options": model.options,
    }
    return job_requests.begin(model, JobKind.BENCH, parameters)
