"""The format and the files of a repository's weights, the architecture, and the task.

GenAI finds the attention of decoders by its form, so a text model of any class may load. Vision:
the types of which Vinery knows how many tokens a picture has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Literal

from vinery_serving.core.picture_sizes import SIZED_TYPES
from vinery_serving.models.hub.repository import Repository

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
    """Return the repository with the files that match the patterns; without patterns, with the
    files that the format needs. Raises `PullFailed` if no file matches."""
    return repository.only(patterns) if patterns else needed_files(repository)


Task = Literal["chat", "completion", "vision", "embeddings", "rerank"]

VISION_TYPES: Final = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", *SIZED_TYPES)

_ENCODERS: Final = ("BertModel", "MPNetForMaskedLM", "RobertaForMaskedLM", "XLMRobertaModel")
# Files of the library sentence-transformers, whose models embed texts.
_POOLING: Final = ("modules.json", "1_Pooling/config.json")
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")


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
        return "rerank"
    is_vision = "vision_config" in config or repository.has("openvino_text_embeddings_model.xml")
    if is_vision or type_of(config) in VISION_TYPES:
        return "vision"
    has_pooling = any(map(repository.has, _POOLING))
    is_tagged = repository.pipeline_tag in ("feature-extraction", "sentence-similarity")
    if has_pooling or name in _ENCODERS or is_tagged:
        return "embeddings"
    # Older models have a template in tokenizer_config.json.
    has_template = any(map(repository.has, _TEMPLATES)) or repository.chat_template
    return "chat" if has_template else "completion"
