"""Which folders of models this host has for others, and which it gets from them.

Only the folder of models of the home counts: what administrators have put elsewhere is theirs to
copy. A fetch is a job of this host. Only one host at a time fetches a model.
"""

from asyncio import to_thread
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction

from vinery_accounts.base import change_signal
from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster import folders
from vinery_serving.cluster.folders import OF_JOB, Folder, is_own, read_folder, state_of
from vinery_serving.cluster.lease import host_id
from vinery_serving.models.host_rows import Host
from vinery_serving.models.job_rows import UNFINISHED, JobKind, JobState, ModelJob
from vinery_serving.models.models import ServedModel
from vinery_serving.processes.apart import NoAnswer, run_apart

_WITHIN_S: Final = 4 * 3600.0
_OF_HUB: Final = ("kind", "endpoint", "repository", "revision", "commit", "include")


# -- What others may fetch


async def note_folders() -> None:
    """Read the folders of models that have changed, and let other hosts know. Raises OSError and
    `django.db.Error`."""
    run_dir = Path(settings.VINERY_RUN_DIR)
    known = await to_thread(folders.kept, run_dir)
    states = await to_thread(_states)
    found = {path: known[path] for path, state in states.items() if _is_as(known, path, state)}
    for path in states.keys() - found.keys():
        found[path] = await _read(Path(path), states[path])
        folders.keep(run_dir, found)
    if found != known:
        folders.keep(run_dir, found)
    await to_thread(_report, found)


def _is_as(known: Mapping[str, Folder], path: str, state: folders.State) -> bool:
    return path in known and known[path].state == state


@giving_back
def _states() -> dict[str, folders.State]:
    root, found = Path(settings.VINERY_PULLED_DIR), {}
    for path in ServedModel.objects.exclude(folder="").values_list("folder", flat=True):
        if is_own(root, Path(path)) and Path(path).is_dir():
            with suppress(OSError):
                found[path] = state_of(Path(path))
    return found


async def _read(folder: Path, state: folders.State) -> Folder:
    try:
        answer = await run_apart(
            read_folder, folder, reads=(folder,), within_s=_WITHIN_S, cpu_s=int(_WITHIN_S), nice=19
        )
        return msgspec.json.decode(answer, type=Folder)
    except (NoAnswer, msgspec.MsgspecError):
        return Folder(state)


@giving_back
def _report(found: Mapping[str, Folder]) -> None:
    digests = {path: [each.digest, len(each.listing)] for path, each in found.items() if each.files}
    if Host.objects.filter(pk=host_id()).exclude(digests=digests).update(digests=digests):
        change_signal.send()


# -- What this host fetches


def obtainable(missing: Iterable[str], placed: Mapping[str, int]) -> set[str]:
    """Return which of these folders this host fetches, or could fetch. A fetch begins for those
    that are in `placed`, with their models."""
    jobs = ModelJob.objects.filter(kind=JobKind.FETCH, parameters__host=str(host_id()))
    found = set()
    for folder in missing:
        own = list(jobs.filter(parameters__folder=folder))
        failed = [_origin(each) for each in own if each.state == JobState.FAILED]
        untried = [each for each in _origins(folder) if each not in failed]
        if any(each.is_unfinished for each in own):
            found.add(folder)
        elif untried and not any(each.state == JobState.CANCELLED for each in own):
            found.add(folder)
            if folder in placed:
                _begin(placed[folder], folder, untried[0])
    return found


def _origin(job: ModelJob) -> dict[str, Any]:
    return {name: each for name, each in job.parameters.items() if name not in OF_JOB}


def _origins(folder: str) -> Iterator[dict[str, Any]]:
    """Where a folder can be fetched: from hosts, or from the hub."""
    root = Path(settings.VINERY_PULLED_DIR)
    if not is_own(root, Path(folder)):
        return
    hosts = Host.objects.filter(is_gone=False).exclude(pk=host_id()).exclude(fingerprint="")
    for host in hosts.exclude(address="") if settings.VINERY_HOST_KEY else ():
        if folder in host.digests:
            digest, list_bytes = host.digests[folder]
            known = {"kind": "host", "name": host.name, "address": host.address}
            known |= {"fingerprint": host.fingerprint, "digest": digest}
            yield {**known, "list_bytes": list_bytes}
    for source in ServedModel.objects.filter(folder=folder).values_list("source", flat=True)[:1]:
        if source.get("kind") == "hub":
            from vinery_serving.models.hub.origins import origin_of  # 0.1 s of each process

            origin = {name: source[name] for name in _OF_HUB}
            if Path(folder).is_relative_to(origin_of(origin).folders(root).final):
                yield origin


def _begin(model_id: int, folder: str, origin: Mapping[str, Any]) -> None:
    """Begin a fetch, unless another host that lives fetches the model."""
    unfinished = ModelJob.objects.filter(
        model_id=model_id, kind=JobKind.FETCH, state__in=UNFINISHED
    )
    live = [str(each) for each in Host.objects.filter(is_gone=False).values_list("pk", flat=True)]
    unfinished.exclude(parameters__host__in=live).delete()
    named = {"host": str(host_id()), "on": settings.VINERY_HOST_NAME, "folder": folder}
    job = ModelJob(model_id=model_id, kind=JobKind.FETCH, parameters={**named, **origin})
    if not unfinished.exists():
        try:
            with transaction.atomic():
                job.save()
        except IntegrityError:  # another host was first
            return
        change_signal.send()
