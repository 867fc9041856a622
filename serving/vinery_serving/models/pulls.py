"""Models of hubs: questions to hubs, the verdict whether a model will load here, and pulls.

Pages and the management API ask hubs a few questions at a time, each with a deadline. A question
occupies a thread. A late question counts until its connection ends: a slow hub cannot collect
threads.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError

from vinery_accounts.outbound.client import DaemonThreads, ThreadsBusy
from vinery_serving.models import devices, job_requests, registry
from vinery_serving.models.folder_options import read_apart
from vinery_serving.models.hub import catalogue
from vinery_serving.models.hub import repository as hub_repository
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.machine import CONTEXT_TOKENS, Machine, this_machine
from vinery_serving.models.hub.origins import ArchiveOrigin, FilesOrigin, HubOrigin, Origin
from vinery_serving.models.hub.repository import is_archive, wanted_files
from vinery_serving.models.hub.verdict import Answer, Verdict, gigabytes, will_it_load
from vinery_serving.models.job_requests import Pull, Repository
from vinery_serving.models.job_rows import JobKind, ModelJob
from vinery_serving.models.models import ServedModel

ResultT = TypeVar("ResultT")
MAX_QUESTIONS: Final = 4
_THREADS: Final = DaemonThreads(MAX_QUESTIONS)
_CPU: Final = "CPU"


@dataclass(frozen=True, slots=True)
class Judged:
    """The origin of a pull, the verdict, and the name of the model. An archive has no verdict
    before it is unpacked."""

    origin: Origin
    verdict: Verdict | None
    name: str


def ask(question: Callable[[], ResultT], within_s: float = 25.0) -> ResultT:
    """Return the answer. Raises what the question raises, and `HubUnavailable` after the deadline
    or while too many questions run."""

    async def answer() -> ResultT:
        async with asyncio.timeout(within_s):
            return await _THREADS.call(question)

    try:
        return asyncio.run(answer())
    except ThreadsBusy:
        raise HubUnavailable(
            "Too many questions to hubs are running. Try again in a moment."
        ) from None
    except TimeoutError:
        raise HubUnavailable(
            f"The hub did not answer within {within_s:g} s. Check the network, HTTPS_PROXY and "
            "HF_ENDPOINT."
        ) from None


def look(asked: Repository, context: int = CONTEXT_TOKENS, within_s: float = 25.0) -> Judged:
    """Ask the hub, and judge the model for the device. Raises `PullFailed`."""
    return ask(lambda: judge(asked, machine_for(asked.device), context), within_s)


def judge(asked: Repository, machine: Machine, context: int = CONTEXT_TOKENS) -> Judged:
    """Judge a model without fetching weights. Raises `PullFailed` and `HubUnavailable`."""
    what, path = asked.repository, Path(asked.repository)
    if "://" in what:
        archive = ArchiveOrigin.look(what, asked.sha256 and asked.sha256.lower())
        return Judged(archive, None, archive.name.partition(".")[0])
    if path.is_absolute():
        files, name = FilesOrigin.look(path), path.name.partition(".")[0]
        if is_archive(path):
            return Judged(files, None, name)
        found = read_apart(
            *(hub_repository.local_repository, path),
            answers=hub_repository.Repository,
            fails=PullFailed,
            reads=(path,),
        )
        return Judged(files, will_it_load(found, machine, context), name)
    if (entry := catalogue.find(what)) is not None:
        if entry.shipped:
            raise PullFailed(f"{what} ships with Vinery. Add a model with the folder {what}.")
        what = entry.repository
    hub = Hub.of_environment()
    repository = wanted_files(hub.repository(what, asked.revision), asked.include)
    verdict = will_it_load(repository, machine, context)
    origin = HubOrigin(
        repository=repository.name,
        revision=repository.revision,
        commit=repository.commit,
        include=list(asked.include),
        endpoint=hub.endpoint,
        precision=verdict.precision if verdict.answer is Answer.CONVERT else None,
    )
    return Judged(origin, verdict, repository.name.rpartition("/")[2])


def pull(asked: Pull, judged: Judged | None = None) -> ModelJob:
    """Judge a model, unless `judged` is given, and ask the node for the pull. A model with a folder
    serves from it until the new folder is ready. Raises `PullFailed`, and ValidationError for a
    model that will not load."""
    judged = judged or look(asked)
    if judged.verdict is not None and judged.verdict.answer is Answer.NO:
        raise ValidationError(" ".join(judged.verdict.reasons))
    origin = judged.origin
    if asked.precision is not None:
        if not isinstance(origin, HubOrigin) or origin.precision is None:
            text = "A precision is for a checkpoint of a hub, and this is none. Leave it out."
            raise ValidationError({"precision": text})
        origin = msgspec.structs.replace(origin, precision=asked.precision)
    secret = ""
    if isinstance(origin, ArchiveOrigin):
        origin, secret = origin.without_secret()
    return job_requests.begin_folder(
        asked.name or judged.name,
        JobKind.PULL,
        msgspec.to_builtins(origin),
        secret,
        device=asked.device,
        options=asked.options,
        is_loaded=asked.is_loaded,
    )


def facts_of(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a verdict for pages and commands, the most important first."""
    need, machine = verdict.need, verdict.machine
    commit = f" at {verdict.commit[:12]}" if verdict.commit else ""  # files of this machine: none
    yield "model", f"{verdict.repository}{commit}"
    yield "loads", verdict.answer
    yield "format", f"{verdict.format}, {verdict.precision or 'precision unknown'}"
    yield "task", f"{verdict.task}, {verdict.architecture or 'architecture unknown'}"
    yield "licence", verdict.licence or "unknown"
    yield ("files", f"{gigabytes(verdict.size_bytes)} of {gigabytes(machine.free_disk_bytes)} free")
    yield (
        "memory",
        f"{gigabytes(need.total_bytes)} of {gigabytes(machine.memory_bytes)}: weights "
        f"{gigabytes(need.weights_bytes)}, KV cache of {need.context_tokens:,} tokens "
        f"{gigabytes(need.kv_cache_bytes)}, engine {gigabytes(need.overhead_bytes)}",
    )


def machine_for(device: str) -> Machine:
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    found = [each for each in known.devices if each.name == device] if known else []
    own_bytes = found[0].memory_bytes if found and device != _CPU else None
    return this_machine(Path(settings.VINERY_PULLED_DIR), device, own_bytes)


def add_shipped(name: str, served_as: str | None, *, device: str, load: bool) -> ServedModel | None:
    """Serve a shipped model of the catalogue; None for any other name. Raises ValidationError."""
    entry = catalogue.find(name)
    if entry is None or not entry.shipped:
        return None
    return registry.add_model(Path(name), name=served_as or name, device=device, load=load)
