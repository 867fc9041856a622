"""In which format a repository has its weights, and which of its files that format needs."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from vinery_serving.models.hub.repository import Repository

_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")
_NO_WEIGHTS: Final = ("openvino_tokenizer.bin", "openvino_detokenizer.bin")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Weights for other software, which some repositories have beside those that are wanted.
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
    """Return the format that needs the least work among those that a repository has."""
    paths = [each.path for each in repository.files]
    if any(map(repository.has, _GRAPHS)):
        return Format.OPENVINO
    if any(path.endswith(".safetensors") for path in paths):
        return Format.CHECKPOINT
    if gguf_files(repository):
        return Format.GGUF
    has_pickles = any(path.endswith(_PICKLES) for path in paths)
    return Format.PICKLE if has_pickles else Format.NONE


def gguf_files(repository: Repository) -> list[str]:
    """Return the paths of its GGUF files."""
    return [each.path for each in repository.files if each.path.endswith(".gguf")]


def weights_of(repository: Repository, format_: Format) -> int:
    """Return the bytes of the files that hold the weights."""
    suffix = _SUFFIXES.get(format_)
    return sum(
        each.size_bytes
        for each in repository.files
        if suffix and each.path.endswith(suffix) and each.name not in _NO_WEIGHTS
    )


def needed_files(repository: Repository) -> Repository:
    """Return it without the weights of other formats: none of them is read, and files in Python's
    pickle format could run code. One without a format that is read stays as it is, to be judged."""
    kept = _SUFFIXES.get(format_of(repository))
    if kept is None:
        return repository
    files = tuple(each for each in repository.files if _is_needed(repository, each.path, kept))
    return replace(repository, files=files)


def _is_needed(repository: Repository, path: str, kept: str) -> bool:
    if path.endswith(".bin"):
        return kept == ".bin" and repository.has(path.removesuffix(".bin") + ".xml")
    is_weights = path.endswith((*_FOREIGN, ".safetensors", ".gguf"))
    return not is_weights or path.endswith(kept)


def wanted_files(repository: Repository, patterns: Sequence[str]) -> Repository:
    """Return it with the files that match the patterns; without patterns with those that its format
    needs. Raises `PullFailed` if no file matches."""
    return repository.only(patterns) if patterns else needed_files(repository)
