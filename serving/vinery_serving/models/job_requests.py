"""Requests for jobs, and the storage of their results. Each request is audited.

The parameters of a kind are a frozen class, which the API, the console and the commands read. Each
kind has a function that stores results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_serving.core.tasks import Task, explanation
from vinery_serving.models import devices
from vinery_serving.models.convert.checkpoint import ConvertError, Precision, check, parse
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.hub.machine import CONTEXT_TOKENS
from vinery_serving.models.job_rows import (
    UNFINISHED,
    Asked,
    JobKind,
    JobState,
    ModelJob,
    SpeedResult,
    encrypted,
)
from vinery_serving.models.models import ServedModel

# The states of models that can be measured.
MEASURABLE: Final = (ShownState.READY, ShownState.ASLEEP)


def begin(
    model: ServedModel, kind: JobKind, parameters: Mapping[str, Any], secret: str = ""
) -> ModelJob:
    """Ask the node for a job, and keep 50 jobs of the model that have ended. Raises ValidationError
    while a job of this kind has not ended."""
    ended = ModelJob.objects.filter(model=model).exclude(state__in=UNFINISHED)
    ended.exclude(pk__in=list(ended.values_list("pk", flat=True)[:50])).delete()
    known = {"parameters": dict(parameters), "secret": encrypted(secret)}
    return changes.add(ModelJob(model=model, kind=kind, **known))


def begin_folder(
    name: str, kind: JobKind, parameters: Mapping[str, Any], secret: str = "", **new: Any
) -> ModelJob:
    """Ask for a job that makes the folder of a model. `new` has the columns of the model if the
    name is new. Raises ValidationError."""
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first()
        if model is None:
            model = ServedModel(name=name, **new)
            model.awaits_folder = True
            changes.add(model)
        return begin(model, kind, parameters, secret)


def pause(job: ModelJob) -> ModelJob:
    return changes.switch(job, "pause", asked=Asked.PAUSE)


def cancel(job: ModelJob) -> ModelJob:
    """End a job for good. Its files so far are deleted."""
    return changes.switch(job, "cancel", asked=Asked.CANCEL)


def resume(job: ModelJob) -> ModelJob:
    values: dict[str, Any] = {"asked": Asked.RUN}
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        values |= {"state": JobState.WAITING, "num_attempts": 0, "next_attempt_at": None}
        values |= {"error": "", "ended_at": None}
    return changes.switch(job, "resume", **values)


# -- Pulls, see `pulls`, and questions to hubs


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A model of a hub."""

    repository: Annotated[
        str,
        "A repository of the hub, such as OpenVINO/Qwen3-8B-int4-ov; a name of the catalogue; a "
        "URL of an archive (https://, s3://); or the absolute path of a folder, a GGUF file or an "
        "archive, which is copied.",
        {"max_length": 2048},
    ]
    sha256: Annotated[
        str | None,
        "Of the archive of a URL, if it is known: another archive is refused, and http:// is "
        "allowed.",
        {
            "label": "SHA-256 of the archive",
            "regex": r"^[0-9a-fA-F]{64}\Z",
            "error_messages": {"invalid": "Write 64 hexadecimal digits, or leave it empty."},
        },
    ] = None
    revision: Annotated[str | None, "A branch, tag or commit.", {"max_length": 200}] = None
    include: Annotated[
        list[str],
        "Only files that match one of these, such as *.json; empty: what is needed.",
        {"max_length": 50},
    ] = field(default_factory=list)
    device: Annotated[
        str, "Where it should run, such as CPU, GPU or AUTO:GPU,CPU.", {"max_length": 64}
    ] = "CPU"


@dataclass(frozen=True, kw_only=True)
class Check(Repository):
    """A model of a hub, and how it would be used."""

    context: Annotated[
        int,
        "Tokens of one conversation that there should be memory for.",
        {"min_value": 1, "max_value": 1 << 24},
    ] = CONTEXT_TOKENS


@dataclass(frozen=True, kw_only=True)
class Pull(Repository):
    """A model of a hub, and what becomes of it."""

    name: Annotated[
        str | None,
        "The model that gets the files; empty: named after them. A new name adds a model.",
        {"max_length": 128},
    ] = None
    options: Annotated[dict[str, Any], "Engine options of a new model."] = field(
        default_factory=dict
    )
    precision: Annotated[
        Precision | None,
        "To which a checkpoint is converted after its pull; empty: that of the check.",
    ] = None
    is_loaded: Annotated[bool, "Whether a new model is loaded then."] = True


@dataclass(frozen=True, kw_only=True)
class Search:
    """Words to search a hub for."""

    text: Annotated[str, "Words of the name.", {"max_length": 200}]
    only_openvino: Annotated[bool, "Only models that need no conversion."] = True


# -- Conversions: a checkpoint becomes the folder of a model, which is added if it is new


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A checkpoint, and what becomes of it."""

    folder: Annotated[
        str,
        "Absolute path, on the server, of a folder with config.json and weights, such as "
        "safetensors.",
        {"max_length": 1024, "label": "Folder of the checkpoint"},
    ]
    name: Annotated[
        str, "The model that gets the result. A new name adds a model.", {"max_length": 128}
    ]
    device: Annotated[str, "Of a new model.", {"max_length": 64}] = "CPU"
    is_loaded: Annotated[bool, "Whether a new model is loaded then."] = True
    options: Annotated[
        dict[str, Any], 'Such as {"precision": "int4"}. `vinery model convert --help` lists them.'
    ] = field(default_factory=dict)


def convert(asked: Conversion) -> ModelJob:
    """Ask the node to convert a checkpoint. A model with a folder serves from it until the new
    folder is ready.

    Raises ValidationError for a checkpoint (`folder`) or options with which no conversion can
    begin, by their names.
    """
    from vinery_serving.models.folder_options import read_apart  # only this starts processes

    folder = Path(asked.folder).expanduser().resolve()
    try:
        options = parse(asked.options)
        read_apart(check, folder, options.task, answers=None, fails=ConvertError, reads=(folder,))
    except ConvertError as error:
        raise ValidationError({error.option or "folder": [str(error)]}) from error
    return begin_folder(
        asked.name,
        JobKind.CONVERT,
        {"source": str(folder), **asked.options},
        device=asked.device,
        is_loaded=asked.is_loaded,
    )


def checkpoint_of(model: ServedModel) -> str:
    """Return the folder of the model's last converted checkpoint; empty: there is none, the
    conversion has not ended, or the folder is gone."""
    job = ModelJob.objects.filter(model=model, kind=JobKind.CONVERT).first()
    if job is None or job.is_unfinished or not Path(job.parameters["source"]).is_dir():
        return ""
    return str(job.parameters["source"])


# -- Measurements, and better engine options


def measure(model: ServedModel) -> ModelJob:
    """Ask the node to measure a model, which wakes if it is asleep. Raises ValidationError for a
    model that cannot answer now."""
    _check_task(model)
    if model.shown_state not in MEASURABLE:
        raise ValidationError(
            f"{model} is {model.state_text}: load it, wait until it is ready, and measure it then."
        )
    known = {"model_id": model.pk, "settings_digest": model.settings_digest}
    return begin(model, JobKind.BENCH, known | _settings_of(model))


@dataclass(frozen=True, kw_only=True)
class Tune:
    """How long to look for better options, and which may win."""

    time_limit_s: Annotated[
        float,
        "No trial begins after so many seconds.",
        {"min_value": 10, "max_value": 86_400, "label": "Time limit in seconds"},
    ] = 900
    allow_other_answers: Annotated[
        bool, "Whether options that change greedy answers may win, such as another KV precision."
    ] = False


def tune(model: ServedModel, asked: Tune) -> ModelJob:
    """Ask the node to look for better engine options, in engines beside the serving one. Raises
    ValidationError for a model without a folder."""
    _check_task(model)
    if not model.folder:
        raise ValidationError(f"{model} has no folder yet: it is {model.state_text}.")
    parameters = {"max_context": model.status.max_context, **asdict(asked)}
    return begin(model, JobKind.TUNE, _settings_of(model) | parameters)


def apply_tuning(model: ServedModel) -> ServedModel:
    """Set the best options that the last tuning has found. Raises ValidationError without a tuning,
    or if folder, device or options have changed since."""
    job = ModelJob.objects.filter(model=model, kind=JobKind.TUNE, state=JobState.DONE).first()
    if job is None:
        raise ValidationError(f"{model} has not been tuned yet. See: vinery model tune --help")
    if has_changed_since(model, job):
        raise ValidationError(f"{model} has changed since it was tuned. Tune it again.")
    return changes.change(model, "apply-tuning", options=job.result["best"])


def has_changed_since(model: ServedModel, tuning: ModelJob) -> bool:
    """Whether the model has other options, another device or another folder than a tuning had."""
    return not _settings_of(model).items() <= tuning.parameters.items()


def _settings_of(model: ServedModel) -> dict[str, Any]:
    return {"folder": model.folder, "device": model.device, "options": model.options}


def _check_task(model: ServedModel) -> None:
    task = Task(model.task)
    if not task.is_generation:
        raise ValidationError(
            f"{model} {explanation(task)}. Speed is measured of models that generate text."
        )


# Measurements that are kept of each model. More of them are deleted, the oldest first.
MAX_RESULTS: Final = 200


def take_result(job: ModelJob, result: Mapping[str, Any]) -> str:
    """Store the result and end the job. Returns what is wrong with the result; empty: nothing."""
    try:
        _TAKERS[JobKind(job.kind)](job, result)
    except (ValidationError, ValueError) as error:
        return " ".join(getattr(error, "messages", [str(error)]))
    ModelJob.objects.filter(pk=job.pk).update(
        state=JobState.DONE, result=dict(result), ended_at=timezone.now(), error="", secret=""
    )
    return ""


def _take_folder(job: ModelJob, result: Mapping[str, Any]) -> None:
    """Give the model the job's folder. Raises ValidationError for one that cannot be served."""
    model = ServedModel.objects.get(pk=job.model_id)
    model.folder = result["folder"]
    model.clean_fields(exclude={field.name for field in model._meta.fields} - {"folder"})
    ServedModel.objects.filter(pk=model.pk).update(
        folder=model.folder, task=model.task, updated_at=timezone.now()
    )


def _take_pull(job: ModelJob, result: Mapping[str, Any]) -> None:
    """Give the model the pulled folder; a checkpoint is converted first. Raises ValidationError for
    a folder that cannot be served."""
    ServedModel.objects.filter(pk=job.model_id).update(source=result.get("source", {}))
    if "precision" not in result:
        _take_folder(job, result)
        return
    parameters = {"source": result["folder"], "precision": result["precision"]}
    conversion = ModelJob(model_id=job.model_id, kind=JobKind.CONVERT, parameters=parameters)
    conversion.full_clean()
    conversion.save()


def _take_speed(job: ModelJob, result: Mapping[str, Any]) -> None:
    asked, known = job.parameters, devices.read(Path(settings.VINERY_RUN_DIR))
    names = {each.name: each.full_name for each in known.devices} if known else {}
    SpeedResult.objects.create(
        model_id=job.model_id,
        device_name=names.get(asked["device"], ""),
        **{name: asked[name] for name in ("folder", "device", "options")},
        **{**result, "versions": {"vinery": settings.VINERY_VERSION, **result["versions"]}},
    )
    results = SpeedResult.objects.filter(model_id=job.model_id)
    results.exclude(pk__in=list(results.values_list("pk", flat=True)[:MAX_RESULTS])).delete()


_TAKERS: Final[Mapping[JobKind, Callable[[ModelJob, Mapping[str, Any]], None]]] = {
    JobKind.PULL: _take_pull,
    JobKind.CONVERT: _take_folder,
    JobKind.BENCH: _take_speed,
    JobKind.TUNE: lambda job, result: None,  # the row of the job has it
    JobKind.FETCH: lambda job, result: None,  # the host sees the folder
}
