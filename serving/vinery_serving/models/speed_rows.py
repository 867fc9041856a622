"""The speed of models on this host: what jobs have measured, with all that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import models

from vinery_serving.models import devices
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_rows import JobKind, ModelJob
from vinery_serving.models.models import ServedModel

# Measurements that are kept of each model. More of them are deleted, the oldest first.
MAX_RESULTS: Final = 200


class SpeedResult(models.Model):
    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="speeds")
    measured_at = models.DateTimeField(auto_now_add=True)
    folder = models.CharField(max_length=1024)
    device = models.CharField(max_length=64)
    device_name = models.CharField(max_length=256, blank=True, help_text="Empty: unknown.")
    options = models.JSONField(default=dict, help_text="The engine options at that time.")
    versions = models.JSONField(default=dict, help_text="Of Vinery, OpenVINO and OpenVINO GenAI.")
    num_prompt_tokens = models.PositiveIntegerField(help_text="Of each request.")
    num_output_tokens = models.PositiveIntegerField(help_text="Of each request.")
    num_other_tokens = models.PositiveBigIntegerField(
        help_text="That clients used meanwhile: they made the measured requests slower."
    )
    points = models.JSONField(
        help_text="For each number of streams: prompt_tokens_per_s and output_tokens_per_s of all "
        "streams together, the median first_token_s, and memory_bytes of the engine."
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.model}, {self.measured_at:%Y-%m-%d %H:%M}"

    def value(self, streams: int, name: str) -> float | None:
        """Return one measured value; None: this number of streams was not measured."""
        found = (point[name] for point in self.points if point["streams"] == streams)
        return next(found, None)


def take_speed(job: ModelJob, result: Mapping[str, Any]) -> None:
    """Store the result of a job with the settings that it began with."""
    asked, device = job.parameters, str(job.parameters["device"])
    SpeedResult.objects.create(
        model_id=job.model_id,
        folder=asked["folder"],
        device=device,
        device_name=_device_name(device),
        options=asked["options"],
        versions={"vinery": settings.VINERY_VERSION, **result["versions"]},
        num_prompt_tokens=result["num_prompt_tokens"],
        num_output_tokens=result["num_output_tokens"],
        num_other_tokens=result["num_other_tokens"],
        points=result["points"],
    )
    results = SpeedResult.objects.filter(model_id=job.model_id)
    kept = results.values_list("pk", flat=True)[:MAX_RESULTS]
    results.exclude(pk__in=list(kept)).delete()


def why_futile(job: ModelJob) -> str:
    """Return why a measurement cannot end well any more, for administrators; empty: it can, or the
    job measures nothing. The job's process knows the engine's socket alone."""
    model = job.model
    if job.kind != JobKind.BENCH:
        return ""
    if job.parameters.get("settings_digest") != model.settings_digest:
        return "The model was changed meanwhile. Measure it again."
    if model.shown_state is ShownState.FAILED:
        return f"The model does not load: {model.status.last_error}"
    if model.shown_state in (ShownState.UNLOADING, ShownState.UNLOADED):
        return "The model was unloaded. Load it, wait until it is ready, and measure it then."
    return ""


def _device_name(device: str) -> str:
    """Return the full name of a device, such as that of the processor; empty: unknown."""
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    found = (each.full_name for each in known.devices if each.name == device) if known else ()
    return next(iter(found), "")
