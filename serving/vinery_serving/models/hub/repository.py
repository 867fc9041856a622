"""A model before the pull, with sizes, digests and configuration of the files: a repository of a
hub at one commit, or files of this machine."""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

import msgspec

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.gguf import read_metadata


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file. Large files have the SHA-256 of the content, others the SHA-1 of git's blob."""

    path: str  # within the repository, with slashes
    size_bytes: int
    sha256: str | None = None
    git_sha1: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Repository:
    name: str  # such as OpenVINO/Qwen3-8B-int4-ov
    revision: str  # what was asked for, such as main
    commit: str
    files: tuple[RepositoryFile, ...]
    config: Mapping[str, Any] = field(default_factory=dict)  # config.json; empty: there is none
    openvino_config: Mapping[str, Any] = field(default_factory=dict)  # openvino_config.json
    chat_template: str | None = None  # of tokenizer_config.json
    gguf_architecture: str | None = None  # such as qwen3
    licence: str | None = None
    pipeline_tag: str | None = None  # the hub's name of the task

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def file(self, path: str) -> RepositoryFile | None:
        return next((each for each in self.files if each.path == path), None)

    def has(self, path: str) -> bool:
        return self.file(path) is not None

    def only(self, patterns: Sequence[str]) -> Self:
        """Return the repository with the files that match a pattern, such as `*.json`; without
        patterns, with all files. Raises `PullFailed` if no file matches."""
        if not patterns:
            return self
        files = tuple(
            file
            for file in self.files
            if any(fnmatch.fnmatchcase(file.path, each) for each in patterns)
        )
        if not files:
            raise PullFailed(
                f"No file of {self.name} matches {' or '.join(patterns)}. Its files: "
                f"{', '.join(each.path for each in self.files[:20])}."
            )
        return replace(self, files=files)


def check_name(name: str) -> None:
    """Raises `PullFailed` for an unsafe name of a repository: the name becomes a folder."""
    form = r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?"
    if not re.fullmatch(form, name, re.ASCII) or ".." in name or "--" in name:
        raise PullFailed(
            f"{name!r} is no name of a repository. Write it as on the hub, such as "
            "OpenVINO/Qwen3-8B-int4-ov."
        )


def check_path(path: str, source: str) -> None:
    """Raises `PullFailed` for a path that would leave the folder of the files."""
    parts = path.split("/")
    is_plain = path.isprintable() and "\\" not in path and ":" not in path
    if not is_plain or any(part in ("", ".", "..") for part in parts) or len(path) > 1024:
        raise PullFailed(f"{source} has a file with the name {path!r}, which is not safe.")


# -- Files of this machine: a folder, or a GGUF file


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"))


def find_local(path: Path) -> bytes:
    """Return a `Repository`, or why there is none. Only for a process that may be killed."""
    try:
        return msgspec.json.encode(local_repository(path))
    except PullFailed as error:
        return msgspec.json.encode(str(error))


def local_repository(path: Path) -> Repository:
    """Return a folder, or a GGUF file, as a repository without a commit. Raises `PullFailed`."""
    if path.is_file():
        architecture = read_metadata(path).get("general.architecture")
        one = (RepositoryFile(path.name, path.stat().st_size),)
        return Repository(path.stem, "", "", one, gguf_architecture=architecture)
    if not path.is_dir():
        raise PullFailed(f"There is no folder or file {path}.")
    files = tuple(
        RepositoryFile(each.relative_to(path).as_posix(), each.stat().st_size)
        for each in sorted(path.rglob("*"))
        if each.is_file()
    )
    ggufs = [each for each in files if each.path.endswith(".gguf")]
    metadata = read_metadata(path / ggufs[0].path) if len(ggufs) == 1 else {}
    return Repository(
        name=path.name,
        revision="",
        commit="",
        files=files,
        config=_object(path / "config.json"),
        openvino_config=_object(path / "openvino_config.json"),
        chat_template=_object(path / "tokenizer_config.json").get("chat_template"),
        gguf_architecture=metadata.get("general.architecture"),
    )


def _object(path: Path) -> dict[str, Any]:
    from vinery_serving.prompting.folder import UnusableFolder, read_object  # few commands need it

    try:
        return dict(read_object(path))
    except UnusableFolder as error:
        raise PullFailed(str(error)) from None
