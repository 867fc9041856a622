"""A model before the pull, with sizes, digests and configuration of the files: a repository of a
hub at one commit, or files of this machine; the format of its weights, its architecture and task.

GenAI finds the attention of decoders by its form, so a text model of any class may load. Vision:
the types of which Vinery knows how many tokens a picture has.
"""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from vinery_serving.core.tasks import Task
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


# -- The format and the files of the weights, the architecture, and the task

GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Weights for other software, which some repositories have, too.
_FOREIGN: Final = (*_PICKLES, ".onnx", ".onnx_data", ".h5", ".msgpack", ".tflite", ".mlmodel")


class Format(StrEnum):
    OPENVINO = "OpenVINO"
    CHECKPOINT = "safetensors"
    GGUF = "GGUF"
    PICKLE = "pickle"
    NONE = "none"


_SUFFIXES: Final = {
    Format.OPENVINO: ".bin",
    Format.CHECKPOINT: ".safetensors",
    Format.GGUF: ".gguf",
}


def format_of(repository: Repository) -> Format:
    """Return the format of a repository; of several, the format that needs the least work."""
    paths = [each.path for each in repository.files]
    if any(map(repository.has, GRAPHS)):
        return Format.OPENVINO
    if any(path.endswith(".safetensors") for path in paths):
        return Format.CHECKPOINT
    if gguf_files(repository):
        return Format.GGUF
    return Format.PICKLE if any(path.endswith(_PICKLES) for path in paths) else Format.NONE


def gguf_files(repository: Repository) -> list[str]:
    return [each.path for each in repository.files if each.path.endswith(".gguf")]


def weights_of(repository: Repository, format_: Format) -> int:
    suffix, others = _SUFFIXES.get(format_), ("openvino_tokenizer.bin", "openvino_detokenizer.bin")
    return sum(
        each.size_bytes
        for each in repository.files
        if suffix and each.path.endswith(suffix) and each.name not in others
    )


def needed_files(repository: Repository) -> Repository:
    """Return the repository without weights of other formats: these are not read, and files in
    Python's pickle format could run code. A repository without a readable format stays whole, to be
    judged."""
    kept = _SUFFIXES.get(format_of(repository))
    if kept is None:
        return repository

    def is_needed(path: str) -> bool:
        if path.endswith(".bin"):
            return kept == ".bin" and repository.has(path.removesuffix(".bin") + ".xml")
        return path.endswith(kept) or not path.endswith((*_FOREIGN, ".safetensors", ".gguf"))

    return replace(
        repository, files=tuple(each for each in repository.files if is_needed(each.path))
    )


def wanted_files(repository: Repository, patterns: Sequence[str]) -> Repository:
    """Return the repository with the files that match a pattern, such as `*.json`; without
    patterns, with the files that the format needs. Raises `PullFailed` if no file matches."""
    if not patterns:
        return needed_files(repository)
    files = tuple(
        file
        for file in repository.files
        if any(fnmatch.fnmatchcase(file.path, each) for each in patterns)
    )
    if not files:
        raise PullFailed(
            f"No file of {repository.name} matches {' or '.join(patterns)}. Its files: "
            f"{', '.join(each.path for each in repository.files[:20])}."
        )
    return replace(repository, files=files)


_ENCODERS: Final = ("BertModel", "MPNetForMaskedLM", "RobertaForMaskedLM", "XLMRobertaModel")
# Files of the library sentence-transformers, whose models embed texts.
_POOLING: Final = ("modules.json", "1_Pooling/config.json")
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")


def vision_types() -> tuple[str, ...]:
    from vinery_serving.core.picture_sizes import SIZED_TYPES  # 7 ms of each command over models

    return ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", *SIZED_TYPES)


def class_of(config: Mapping[str, Any]) -> str | None:
    """Return the class of a model by its config.json, such as Qwen3ForCausalLM; None: unnamed."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else None


def type_of(config: Mapping[str, Any]) -> str | None:
    named = config.get("model_type")
    return named if isinstance(named, str) else None


def task_of(repository: Repository) -> Task:
    """Return the task that the files and the configuration speak for."""
    config, name = repository.config, class_of(repository.config) or ""
    if repository.pipeline_tag == "text-ranking" or name.endswith("ForSequenceClassification"):
        return Task.RERANK
    is_vision = "vision_config" in config or repository.has("openvino_text_embeddings_model.xml")
    if is_vision or type_of(config) in vision_types():
        return Task.VISION
    has_pooling = any(map(repository.has, _POOLING))
    is_tagged = repository.pipeline_tag in ("feature-extraction", "sentence-similarity")
    if has_pooling or name in _ENCODERS or is_tagged:
        return Task.EMBEDDINGS
    # Older models have a template in tokenizer_config.json.
    has_template = any(map(repository.has, _TEMPLATES)) or repository.chat_template
    return Task.CHAT if has_template else Task.COMPLETION
