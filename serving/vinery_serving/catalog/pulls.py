"""Judges models of a hub for this machine, and asks the node to pull them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from vinery_accounts.services import changes
from vinery_serving.catalog import devices, job_requests, registry
from vinery_serving.catalog.jobs import JobKind, ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.convert.options import Precision
from vinery_serving.core.weight_files import weights_bytes_of
from vinery_serving.hub import catalogue
from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.formats import wanted_files
from vinery_serving.hub.local_files import is_archive, local_repository
from vinery_serving.hub.machine import Machine, this_machine
from vinery_serving.hub.memory_need import CONTEXT_TOKENS, MeasuredEngine
from vinery_serving.hub.origins import ArchiveOrigin, FilesOrigin, HubOrigin, Origin
from vinery_serving.hub.verdict import Answer, Verdict, will_it_load

_CPU: Final = "CPU"


@dataclass(frozen=True, slots=True)
class Judged:
    """What would be pulled, whether it will load here, and the name of the model. An archive is
    judged only when it is unpacked."""

    origin: Origin
    verdict: Verdict | None
    name: str


def judge(
    what: str,
    revision: str | None = None,
    include: Sequence[str] = (),
    *,
    machine: Machine | None = None,
    context: int = CONTEXT_TOKENS,
    sha256: str | None = None,
) -> Judged:
    """Judge a repository, a model of the catalogue, a URL of an archive, or the absolute path of a
    folder, a GGUF file or an archive, without fetching weights. `machine` is that of `machine_for`,
    which asks the database; None: this one with its CPU. Raises `PullFailed`, and `HubUnavailable`
    if the hub does not answer."""
    if "://" in what:
        archive = ArchiveOrigin.look(what, sha256)
        return Judged(archive, None, archive.name.partition(".")[0])
    machine = machine or machine_for(_CPU)
    if Path(what).is_absolute():
        return _judge_files(Path(what), machine, context)
    hub = Hub.of_environment()
    repository = wanted_files(hub.repository(_repository_of(what), revision), include)
    verdict = will_it_load(repository, machine, context)
    origin = HubOrigin(
        repository=repository.name,
        revision=repository.revision,
        commit=repository.commit,
        include=list(include),
        endpoint=hub.endpoint,
        precision=verdict.precision if verdict.answer is Answer.CONVERT else None,
    )
    return Judged(origin, verdict, repository.name.rpartition("/")[2])


def _judge_files(path: Path, machine: Machine, context: int) -> Judged:
    origin, name = FilesOrigin.look(path), path.name.partition(".")[0]
    if is_archive(path):
        return Judged(origin, None, name)
    return Judged(origin, will_it_load(local_repository(path), machine, context), name)


def _repository_of(name: str) -> str:
    """The repository of a name of the catalogue, or the name itself. Raises `PullFailed`."""
    entry = catalogue.find(name)
    if entry is None:
        return name
    if entry.shipped:
        raise PullFailed(f"{name} ships with Vinery. Add a model with the folder {name}.")
    return entry.repository


def machine_for(device: str) -> Machine:
    """Return this machine, with the memory of a device and the engines measured on it."""
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    found = [each for each in known.devices if each.name == device] if known else []
    own_bytes = found[0].memory_bytes if found and device != _CPU else None
    engines = _measured() if device == _CPU else ()
    return this_machine(Path(settings.VINERY_PULLED_DIR), device, own_bytes, engines)


def _measured() -> Iterator[MeasuredEngine]:
    """The engines that the node has measured. Other devices have memory that is not measured, and
    one with a draft model has the weights of two models: they are left out."""
    for model in ServedModel.objects.filter(device=_CPU).select_related("engine"):
        weights_bytes, loaded_bytes = (
            weights_bytes_of(Path(model.folder)),
            model.status.loaded_bytes,
        )
        has_draft = model.options.get("draft_model") or model.options.get("eagle3_head")
        if weights_bytes and loaded_bytes and not has_draft:
            yield MeasuredEngine(weights_bytes, loaded_bytes)


def begin(
    judged: Judged,
    name: str | None = None,
    *,
    device: str = "CPU",
    options: Mapping[str, Any] | None = None,
    load: bool = True,
    precision: Precision | None = None,
) -> ModelJob:
    """Ask the node to pull what was judged for the model `name`, by default named after the files.
    A model that has a folder serves from it until the new one is ready. `precision` is that to
    which a checkpoint is converted; None: the one that was judged.

    Raises ValidationError for what will not load.
    """
    if judged.verdict is not None and judged.verdict.answer is Answer.NO:
        raise ValidationError(" ".join(judged.verdict.reasons))
    name = name or judged.name
    origin = judged.origin if precision is None else _with_precision(judged.origin, precision)
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first()
        if model is None:
            model = ServedModel(
                name=name, folder="", device=device, options=dict(options or {}), is_loaded=load
            )
            model.awaits_folder = True
            model = changes.add(model)
        return job_requests.begin(model, JobKind.PULL, msgspec.to_builtins(origin))


def _with_precision(origin: Origin, precision: Precision) -> Origin:
    """Raises ValidationError for files that are not converted."""
    if not isinstance(origin, HubOrigin) or origin.precision is None:
        text = "A precision is for a checkpoint of a hub, and this is none. Leave it out."
        raise ValidationError({"precision": text})
    return msgspec.structs.replace(origin, precision=precision)


def add_shipped(name: str, served_as: str | None, *, device: str, load: bool) -> ServedModel | None:
    """Serve a model of the catalogue that ships with Vinery; None for any other name. Raises
    ValidationError."""
    entry = catalogue.find(name)
    if entry is None or not entry.shipped:
        return None
    return registry.add_model(Path(name), name=served_as or name, device=device, load=load)
