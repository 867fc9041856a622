"""The origins of models, and the job that pulls a model: see `vinery_serving.models.jobs`.

An origin is a repository of a hub, an archive, or files of this machine. The request fixes a commit
or a state of the file, so that a restarted job fetches the same bytes. No stored origin has a
secret: tokens are in the environment, and the end of a URL, from ? on, is encrypted beside it.
"""

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from huggingface_hub.constants import HF_TOKEN_PATH

from vinery_serving.models.hub.archive import unpack
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.machine import Machine, memory_limit
from vinery_serving.models.hub.pull import (
    Progress,
    PullFolders,
    Report,
    Stream,
    check_disk,
    complete,
    fetch,
    fetch_all,
)
from vinery_serving.models.hub.remote import remote_of, shown
from vinery_serving.models.hub.repository import (
    Format,
    Repository,
    RepositoryFile,
    check_name,
    is_archive,
    local_repository,
    wanted_files,
)
from vinery_serving.models.hub.verdict import Answer, will_it_load
from vinery_serving.models.jobs import JobDocument, Reporter
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs, network_files

# Files that AWS's client reads beside the folder .aws, for s3:// alone.
_OF_AWS: Final = (
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE"),
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)

_BLOCK_BYTES: Final = 4 << 20


def pull(
    hub: Hub,
    repository: Repository,
    models_dir: Path,
    report: Report,
    *,
    patterns: Sequence[str] = (),
) -> Path:
    """Fetch the files, which `patterns` have chosen. Returns the folder. Raises `PullFailed`."""
    folders = PullFolders.of_repository(models_dir, repository, patterns)
    fill = partial(fetch_all, partial(hub.open, repository), repository, folders, report)
    return complete(folders, fill, report)


class _Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """`fetch` returns the folder and facts about the source, and raises `PullFailed`."""


class HubOrigin(_Origin, frozen=True, kw_only=True, tag="hub"):
    repository: str
    revision: str = "main"
    commit: str
    include: list[str] = []
    endpoint: str
    precision: str | None = None  # of a checkpoint's conversion; None: no checkpoint

    def folders(self, models_dir: Path) -> PullFolders:
        check_name(self.repository)
        named = Repository(self.repository, self.revision, self.commit, ())
        return PullFolders.of_repository(models_dir, named, self.include)

    def fetch(self, models_dir: Path, report: Report) -> tuple[Path, dict[str, Any]]:
        report(f"reading {self.repository}", 0, None)
        hub = Hub.of_environment(self.endpoint)
        repository = wanted_files(hub.repository(self.repository, self.commit), self.include)
        folder = pull(hub, repository, models_dir, report, patterns=self.include)
        return folder, {
            "endpoint": self.endpoint,
            "repository": self.repository,
            "revision": self.revision,
            "commit": self.commit,
            "include": self.include,
            "licence": repository.licence,
            "files": {each.path: each.size_bytes for each in repository.files},
        }


class ArchiveOrigin(_Origin, frozen=True, kw_only=True, tag="archive"):
    """An archive at `https://` or `s3://`, in the state that its server names."""

    url: str
    size_bytes: int
    etag: str = ""
    sha256: str | None = None
    is_signed: bool = False  # whether the URL has a query
    precision: str | None = None

    @classmethod
    def look(cls, url: str, sha256: str | None = None) -> "ArchiveOrigin":
        found = remote_of(url, is_checked=sha256 is not None).look()
        return cls(url=url, size_bytes=found.size_bytes, etag=found.etag, sha256=sha256)

    def without_secret(self) -> tuple["ArchiveOrigin", str]:
        """Return the origin that may be stored, and the end of the URL."""
        url, mark, query = self.url.partition("#")[0].partition("?")
        return msgspec.structs.replace(self, url=url, is_signed=bool(query)), mark + query

    @property
    def name(self) -> str:
        return shown(self.url).rpartition("/")[2] or "archive"

    def folders(self, models_dir: Path) -> PullFolders:
        state = f"{shown(self.url)}\0{self.size_bytes}\0{self.sha256 or self.etag}"
        return PullFolders.of_text(models_dir, state, self.name.partition(".")[0])

    def fetch(self, models_dir: Path, report: Report) -> tuple[Path, dict[str, Any]]:
        folders = self.folders(models_dir)

        def fill() -> None:
            archive = folders.unfinished(self.name)
            file = RepositoryFile(self.name, self.size_bytes, sha256=self.sha256)
            done = archive.stat().st_size if archive.is_file() else 0
            check_disk(2 * self.size_bytes - done, folders.root)
            progress = Progress(report, self.size_bytes, done)
            progress.enter(f"fetching {self.name}")
            source = remote_of(self.url, is_checked=self.sha256 is not None, etag=self.etag)
            fetch(source.open, file, archive, progress.advance)
            report(f"unpacking {self.name}", 0, None)
            folders.empty_whole()
            unpack(archive, self.name, folders.whole)

        folder = complete(folders, fill, report)
        return folder, {"url": shown(self.url), "sha256": self.sha256, "etag": self.etag}


class FilesOrigin(_Origin, frozen=True, kw_only=True, tag="files"):
    path: str
    changed_ns: int  # of the folder or file
    precision: str | None = None

    @classmethod
    def look(cls, path: Path) -> "FilesOrigin":
        """Raises `PullFailed` if the path cannot be read."""
        try:
            return cls(path=str(path), changed_ns=path.stat().st_mtime_ns)
        except OSError as error:
            raise PullFailed(f"{path} cannot be read: {error.strerror}.") from None

    def folders(self, models_dir: Path) -> PullFolders:
        hint = Path(self.path).name.partition(".")[0]
        return PullFolders.of_text(models_dir, f"{self.path}\0{self.changed_ns}", hint)

    def fetch(self, models_dir: Path, report: Report) -> tuple[Path, dict[str, Any]]:
        path, folders = Path(self.path), self.folders(models_dir)

        def fill() -> None:
            if is_archive(path):
                report(f"unpacking {path.name}", 0, None)
                folders.empty_whole()
                unpack(path, path.name, folders.whole)
            else:
                opened = partial(_open, path if path.is_dir() else path.parent)
                fetch_all(opened, local_repository(path), folders, report, "copying")

        return complete(folders, fill, report), {"path": self.path}


@contextmanager
def _open(root: Path, file: RepositoryFile, start: int, _: float) -> Iterator[Stream]:
    """See `pull.Open`."""
    with (root / file.path).open("rb") as source:
        source.seek(start)
        yield Stream(start, iter(partial(source.read, _BLOCK_BYTES), b""))


Origin = HubOrigin | ArchiveOrigin | FilesOrigin
_Any: Final[Any] = Origin


def origin_of(parameters: Mapping[str, Any]) -> Origin:
    try:
        origin: Origin = msgspec.convert(dict(parameters), type=_Any)
    except msgspec.ValidationError as error:
        raise PullFailed(f"The parameters of the pull are wrong: {error}.") from None
    return origin


def run(document: JobDocument, reporter: Reporter) -> dict[str, Any]:
    """Raises `PullFailed`."""
    origin = origin_of(document.parameters)
    if isinstance(origin, ArchiveOrigin):
        origin = msgspec.structs.replace(origin, url=origin.url + document.secret)
    folder, source = origin.fetch(models_dir(document.home), reporter.progress)
    is_judged = isinstance(origin, HubOrigin)
    precision = origin.precision if is_judged else _conversion_precision(folder)
    result = {"folder": str(folder), "source": {"kind": document.parameters["kind"], **source}}
    return result | ({"precision": precision} if precision else {})


def needs(document: JobDocument) -> Needs:
    """A pull connects to servers, and writes to the folder of models alone."""
    models, path = models_dir(document.home), document.parameters.get("path")
    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = ["/sys/fs/cgroup", HF_TOKEN_PATH, path]
    if str(document.parameters.get("url")).startswith("s3:"):
        files += ["~/.aws", *map(os.environ.get, _OF_AWS)]
    return Needs(
        reads=[*network_files(), *(Path(each).expanduser() for each in files if each)],
        writes=(models,),
        acts=frozenset((Act.CONNECT, Act.OWN)),
        families=(socket.AF_INET, socket.AF_INET6),
        descriptors=None,
    )


def _conversion_precision(folder: Path) -> str | None:
    """The precision of a checkpoint's conversion; None: the files show no checkpoint. Raises
    `PullFailed` for a model that will not load."""
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
    return home / "models"
