"""The job that pulls a model: see `vinery_serving.models.jobs`.

Its parameters are those of an origin. They hold no token: the environment has it.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.formats import Format
from vinery_serving.models.hub.local_files import local_repository
from vinery_serving.models.hub.machine import Machine, memory_limit
from vinery_serving.models.hub.origins import HubOrigin, origin_of
from vinery_serving.models.hub.verdict import Answer, will_it_load
from vinery_serving.models.jobs.progress import JobDocument, JobFailed, Reporter


def run(document: JobDocument, reporter: Reporter) -> dict[str, Any]:
    """Pull the model. Raises `JobFailed`."""
    try:
        origin = origin_of(document.parameters)
        folder, source = origin.fetch(models_dir(document.home), reporter.progress)
        is_judged = isinstance(origin, HubOrigin)
        precision = origin.precision if is_judged else _precision_of(folder)
    except PullFailed as error:
        raise JobFailed(str(error)) from None
    result = {"folder": str(folder), "source": {"kind": document.parameters["kind"], **source}}
    return result | ({"precision": precision} if precision else {})


def _precision_of(folder: Path) -> str | None:
    """To what a checkpoint, which only its files show to be one, is converted; None: it is none.
    Raises `PullFailed` for what will not load."""
    machine = Machine(memory_bytes=memory_limit(), free_disk_bytes=sys.maxsize)
    verdict = will_it_load(local_repository(folder), machine)
    if verdict.answer is Answer.NO:
        raise PullFailed(" ".join(verdict.reasons))
    return verdict.precision if verdict.format is Format.CHECKPOINT else None


def discard(document: JobDocument) -> None:
    """Delete what an unfinished pull has made, unless another job pulls the same files now."""
    folders = origin_of(document.parameters).folders(models_dir(document.home))
    with suppress(PullFailed), folders.locked():
        folders.discard()


def models_dir(home: Path) -> Path:
    """Return the folder of all pulled models."""
    return home / "models"
