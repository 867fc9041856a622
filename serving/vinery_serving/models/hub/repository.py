"""A repository of a hub at one commit: its files with sizes and digests, and its configuration."""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final, Self

from vinery_serving.models.hub.errors import PullFailed

_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file. Large ones have the SHA-256 of their content, others that of git's blob."""

    path: str  # within the repository, with slashes
    size_bytes: int
    sha256: str | None = None
    git_sha1: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Repository:
    """What a hub lists at one commit."""

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
        """Return a file by its path; None if there is none."""
        return next((each for each in self.files if each.path == path), None)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        return self.file(path) is not None

    def only(self, patterns: Iterable[str]) -> Self:
        """Return it with the files that match one of the patterns, such as `*.json`; without
        patterns with all. Raises `PullFailed` if no file matches."""
        wanted = tuple(patterns)
        if not wanted:
            return self
        files = tuple(each for each in self.files if _matches(each.path, wanted))
        if not files:
            raise PullFailed(
                f"No file of {self.name} matches {' or '.join(wanted)}. Its files: "
                f"{', '.join(each.path for each in self.files[:20])}."
            )
        return replace(self, files=files)


def check_name(name: str) -> None:
    """Raises `PullFailed` for what cannot be the name of a repository: it becomes a folder."""
    if not _NAME.fullmatch(name) or ".." in name or "--" in name:
        raise PullFailed(
            f"{name!r} is no name of a repository. Write it as on the hub, such as "
            "OpenVINO/Qwen3-8B-int4-ov."
        )


def check_path(path: str, source: str) -> None:
    """Raises `PullFailed` for the name of a file that is not below the folder it is written to."""
    parts = path.split("/")
    is_plain = path.isprintable() and "\\" not in path and ":" not in path
    if not is_plain or any(part in ("", ".", "..") for part in parts) or len(path) > 1024:
        raise PullFailed(f"{source} has a file with the name {path!r}, which is not safe.")


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, each) for each in patterns)
