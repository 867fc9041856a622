"""Which folders of models this host has for others, and which it gets from them.

A folder elsewhere than in the home is offered if a model lies in it: the folder of an adapter may
have files of somebody. A fetch is a job of this host.
"""

from asyncio import to_thread
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings

from vinery_accounts.base import change_signal
from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster import folders
from vinery_serving.cluster.folders import OF_JOB, Folder, is_own, read_folder, small_of, state_of
from vinery_serving.cluster.lease import host_id
from vinery_serving.core.model_files import folders_of
from vinery_serving.models.host_rows import Host
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob
from vinery_serving.models.models import ServedModel, own_folder, stored_folder
from vinery_serving.processes.apart import NoAnswer, run_apart

_WITHIN_S: Final = 4 * 3600.0
_OF_HOST: Final = ("name", "address", "fingerprint", "generation")
_OF_HUB: Final = ("kind", "endpoint", "repository", "revision", "commit", "include")


# -- What others may fetch


async def note_folders() -> None:
    """Read the folders of models that have changed, and let other hosts know. Raises OSError and
    `django.db.Error`."""
    known = await to_thread(folders.kept, Path(settings.VINERY_RUN_DIR))
    states = await to_thread(_states)
    found = {path: each for path, each in known.items() if each.state == states.get(path)}
    await to_thread(_offer, found)
    for path in states.keys() - found.keys():
        found[path] = await _read(Path(path), states[path])
        await to_thread(_offer, found)


@giving_back
def _states() -> dict[str, folders.State]:
    root, found = own_folder(""), {}
    named = ServedModel.objects.values_list("folder", "options")
    for folder in {each for row in named for each in folders_of(*row)}:
        if is_own(root, folder) or (folder / "config.json").is_file():
            with suppress(OSError):
                found[str(folder)] = state_of(folder)
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
def _offer(found: Mapping[str, Folder]) -> None:
    if found != folders.kept(run_dir := Path(settings.VINERY_RUN_DIR)):
        folders.keep(run_dir, found)
    digests = {
        stored_folder(path): [each.digest, len(each.listing)]
        for path, each in found.items()
        if each.files
    }
    if Host.objects.filter(pk=host_id()).exclude(digests=digests).update(digests=digests):
        change_signal.send()


# -- What this host fetches


def fetch(missing: Mapping[str, int], placed: Collection[str], served: Collection[str]) -> set[str]:
    """Begin to fetch the folders that are `missing`, with their models: the small files of models
    that are `served`, with which web processes answer, and then all files of those that are
    `placed` here. Returns the folders that this host cannot get."""
    of_host = ModelJob.objects.filter(kind=JobKind.FETCH, parameters__host=str(host_id()))
    jobs = list(of_host.exclude(state=JobState.DONE)) if missing else ()
    origins = _origins(missing) if missing else {}
    lacks = set()
    for folder, model_id in missing.items():
        small = small_of(folder)
        needs_small = folder in served and not own_folder(small).is_dir()
        for part in (small, folder) if needs_small else (folder,):
            own = [each for each in jobs if each.parameters["folder"] == part]
            failed = [_origin(each) for each in own if each.state == JobState.FAILED]
            possible = (each for each in origins[folder] if part == folder or "digest" in each)
            untried = next((each for each in possible if each not in failed), None)
            if any(each.is_unfinished for each in own):
                break
            if untried and not any(each.state == JobState.CANCELLED for each in own):
                if part == small or folder in placed:
                    _begin(model_id, part, untried)
                break
        else:
            lacks.add(folder)
    return lacks


def _begin(model_id: int, folder: str, origin: Mapping[str, Any]) -> None:
    named = {"host": str(host_id()), "on": settings.VINERY_HOST_NAME, "folder": folder}
    parameters = {**named, **origin}
    ModelJob.objects.create(model_id=model_id, kind=JobKind.FETCH, parameters=parameters)
    change_signal.send()


def _origin(job: ModelJob) -> dict[str, Any]:
    return {name: each for name, each in job.parameters.items() if name not in OF_JOB}


def _origins(missing: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    hosts = Host.objects.filter(is_gone=False).exclude(pk=host_id()).exclude(fingerprint="")
    found: dict[str, list[dict[str, Any]]] = {folder: [] for folder in missing}
    for host in hosts.exclude(address="") if settings.VINERY_HOST_KEY else ():
        for folder in missing.keys() & host.digests.keys():
            digest, list_bytes = host.digests[folder]
            known = {"kind": "host", **{name: getattr(host, name) for name in _OF_HOST}}
            found[folder].append({**known, "digest": digest, "list_bytes": list_bytes})
    models = ServedModel.objects.filter(pk__in=missing.values(), source__kind="hub")
    for folder, source in models.values_list("folder", "source"):
        from vinery_serving.models.hub.origins import origin_of  # 0.1 s of each process

        origin = {name: source[name] for name in _OF_HUB}
        if Path(folder).is_relative_to(origin_of(origin).folders(own_folder("")).final):
            found[stored_folder(folder)].append(origin)
    return found
