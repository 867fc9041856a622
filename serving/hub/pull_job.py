"""The job that pulls a model: see `vinery_serving.jobs`.

Its parameters are those of `PullRequest`. They hold no token: the environment has it.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.folders import PullFolders
from vinery_serving.hub.formats import wanted_files
from vinery_serving.hub.pull import pull
from vinery_serving.hub.repository import Repository, check_name
from vinery_serving.jobs.progress import JobDocument, JobFailed, Reporter


class PullRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is pulled. The commit is the one that the model was judged by, so that a job that begins
    again fetches the same files."""

    repository: str
    revision: str = "main"
    commit: str
    include: list[str] = []
    endpoint: str
    precision: str | None = None  # to which a checkpoint is converted then; None: it is none

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> "PullRequest":
        """Raises `PullFailed`."""
        try:
            request = msgspec.convert(dict(parameters), type=cls)
        except msgspec.ValidationError as error:
            raise PullFailed(f"The parameters of the pull are wrong: {error}.") from None
        check_name(request.repository)
        return request

    def folders(self, models_dir: Path) -> PullFolders:
        named = Repository(self.repository, self.revision, self.commit, ())
        return PullFolders.of_repository(models_dir, named, self.include)


def run(document: JobDocument, reporter: Reporter) -> dict[str, Any]:
    """Pull the model. Raises `JobFailed`."""
    try:
        request = PullRequest.read(document.parameters)
        reporter.progress(f"reading {request.repository}")
        hub = Hub.of_environment(request.endpoint)
        listed = hub.repository(request.repository, request.commit)
        repository = wanted_files(listed, request.include)
        folder = pull(
            hub,
            repository,
            models_dir(document.home),
            reporter.progress,
            patterns=request.include,
        )
    except PullFailed as error:
        raise JobFailed(str(error)) from None
    return {"folder": str(folder), "source": source_of(request, repository)}


def source_of(request: PullRequest, repository: Repository) -> dict[str, Any]:
    """Return where a model is from, as its row keeps it."""
    return {
        "kind": "hub",
        "endpoint": request.endpoint,
        "repository": request.repository,
        "revision": request.revision,
        "commit": request.commit,
        "include": request.include,
        "licence": repository.licence,
        "files": {each.path: each.size_bytes for each in repository.files},
    }


def discard(document: JobDocument) -> None:
    """Delete what an unfinished pull has made, unless another job pulls the same files now."""
    folders = PullRequest.read(document.parameters).folders(models_dir(document.home))
    with suppress(PullFailed), folders.locked():
        folders.discard()


def models_dir(home: Path) -> Path:
    """Return the folder of all pulled models."""
    return home / "models"
