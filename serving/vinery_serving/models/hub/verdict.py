"""Whether a model of a hub will load on this machine, before its weights are fetched."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from vinery_serving.core.tasks import Task
from vinery_serving.models.hub.gguf import wrong_architecture
from vinery_serving.models.hub.machine import CONTEXT_TOKENS, Machine, MemoryNeed, memory_need
from vinery_serving.models.hub.repository import (
    Format,
    Repository,
    class_of,
    format_of,
    gguf_files,
    task_of,
    type_of,
    vision_types,
    weights_of,
)

# Beside the files themselves.
DISK_MARGIN_BYTES: Final = 256 << 20
_PRECISION: Final = re.compile(r"(?<![a-z])(int4|int8|nf4|fp4|fp8|fp16|bf16|fp32|f16|f32)", re.I)


class Answer(StrEnum):
    YES = "yes"
    CONVERT = "needs conversion"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: Answer
    reasons: tuple[str, ...]  # sentences, the most important first
    repository: str
    commit: str
    format: Format
    task: Task
    architecture: str | None
    precision: str | None  # of the weights as they would be loaded; None: unknown
    licence: str | None
    size_bytes: int  # to fetch
    need: MemoryNeed
    machine: Machine


def will_it_load(
    repository: Repository, machine: Machine, context: int = CONTEXT_TOKENS
) -> Verdict:
    """Judge a repository, or the files of it that would be fetched, for a machine."""
    format_ = format_of(repository)
    precision, weights_bytes = _weights(repository, format_, machine)
    need = memory_need(weights_bytes, repository.config, context)
    task = task_of(repository)
    refusals = [
        *_wrong_files(repository, format_),
        *_wrong_architecture(repository, format_, task),
        *_too_large(repository, need, machine),
    ]
    answer = Answer.CONVERT if format_ is Format.CHECKPOINT else Answer.YES
    return Verdict(
        answer=Answer.NO if refusals else answer,
        reasons=tuple(refusals) or tuple(_remarks(repository, format_, need, machine, precision)),
        repository=repository.name,
        commit=repository.commit,
        format=format_,
        task=task,
        architecture=class_of(repository.config) or repository.gguf_architecture,
        precision=precision,
        licence=repository.licence,
        size_bytes=repository.size_bytes,
        need=need,
        machine=machine,
    )


def _weights(repository: Repository, format_: Format, machine: Machine) -> tuple[str | None, int]:
    """The precision and the bytes of the loaded weights. For a checkpoint: of the first conversion
    that fits, or of the smallest."""
    stored_bytes = weights_of(repository, format_)
    if format_ is not Format.CHECKPOINT:
        return _declared_precision(repository), stored_bytes
    dtype = repository.config.get("torch_dtype") or repository.config.get("dtype")
    num_weights = stored_bytes / (4 if dtype == "float32" else 2)
    # The bytes that a weight takes after a conversion, with its scales; see docs/guides/sizing.md.
    for precision, bytes_ in (("int8", 1.1), ("int4", 0.6)):
        converted = int(num_weights * bytes_)
        need = memory_need(converted, repository.config, 1)
        if need.total_bytes <= machine.memory_bytes:
            return precision, converted
    return precision, converted


def _declared_precision(repository: Repository) -> str | None:
    """By openvino_config.json, or else by the repository's name."""
    dtype = repository.openvino_config.get("dtype")
    config: Any = repository.openvino_config.get("quantization_config")
    bits = config.get("bits") if isinstance(config, dict) else None
    if bits in (4, 8):
        return f"int{bits}"
    found = _PRECISION.search(str(dtype or "")) or _PRECISION.search(repository.name)
    return found[1].lower() if found else None


def _wrong_files(repository: Repository, format_: Format) -> Iterator[str]:
    name = repository.name
    if format_ is Format.PICKLE:
        yield (
            f"{name} has its weights in Python's pickle format only, which can run any code when "
            "it is read. Choose a repository with safetensors or with an OpenVINO model."
        )
    if format_ is Format.NONE:
        yield (
            f"{name} has neither an OpenVINO model (openvino_model.xml) nor safetensors nor a GGUF "
            "file."
        )
    if format_ is Format.GGUF and len(gguf_files(repository)) > 1:
        some = ", ".join(gguf_files(repository)[:8])
        yield f"{name} has several GGUF files. Name one with --include: {some}."
    if format_ is Format.OPENVINO:
        for graph in (each.path for each in repository.files if each.path.endswith("_model.xml")):
            if not repository.has(graph.removesuffix(".xml") + ".bin"):
                yield f"{graph} has no weights: its .bin file is not in the list."
        if not any(map(repository.has, ("tokenizer.json", "openvino_tokenizer.xml"))):
            yield f"{name} has no tokenizer: neither tokenizer.json nor openvino_tokenizer.xml."


def _wrong_architecture(repository: Repository, format_: Format, task: Task) -> Iterator[str]:
    if format_ is Format.GGUF:
        known = repository.gguf_architecture  # mirrors do not list it: the conversion refuses
        if known and (reason := wrong_architecture(known)):
            yield reason
    elif task is Task.VISION and type_of(repository.config) not in (types := vision_types()):
        yield (
            f"Vinery serves vision models of the types {', '.join(types)}, and this one is "
            f"{type_of(repository.config) or 'of no named type'}."
        )
    elif format_ is Format.CHECKPOINT and not repository.config:
        yield f"{repository.name} has no config.json, so it cannot be converted."


def _too_large(repository: Repository, need: MemoryNeed, machine: Machine) -> Iterator[str]:
    if need.least_bytes > machine.memory_bytes:
        yield (
            f"It needs at least {gigabytes(need.least_bytes)} of memory, and {machine.device} has "
            f"{gigabytes(machine.memory_bytes)}. Choose a smaller model, or one with int4 weights."
        )
    large = [each.path for each in repository.files if each.size_bytes > 50 * 10**9]
    if large and repository.commit:
        yield f"{large[0]} is above 50 GB, and the hub does not send such a file by HTTP."
    if repository.size_bytes + DISK_MARGIN_BYTES > machine.free_disk_bytes:
        yield (
            f"Its files take {gigabytes(repository.size_bytes)}, and the disk of the home folder "
            f"has {gigabytes(machine.free_disk_bytes)} free. Free some, or move the home folder."
        )


def _remarks(
    repository: Repository,
    format_: Format,
    need: MemoryNeed,
    machine: Machine,
    precision: str | None,
) -> list[str]:
    remarks = []
    if format_ is Format.CHECKPOINT:
        remarks.append(
            "It is a checkpoint, which is converted to OpenVINO's format before it is loaded; the "
            f"figures are those of {precision}."
        )
    if format_ is Format.GGUF:
        remarks.append("It is a GGUF file, which is converted to OpenVINO's format once.")
    if need.total_bytes > machine.memory_bytes:
        remarks.append(
            f"There is no memory for a conversation of {need.context_tokens:,} tokens. Set "
            "cache_size_gb, so that longer ones are refused."
        )
    return remarks or [
        f"It needs about {gigabytes(need.total_bytes)} of the {gigabytes(machine.memory_bytes)} "
        f"of memory that {machine.device} has."
    ]


def gigabytes(num_bytes: int) -> str:
    """Return a number of bytes for people: `4.9 GB`, and below a tenth of it `31 MB`."""
    if num_bytes < 100_000_000:
        return f"{num_bytes / 1e6:.0f} MB"
    return f"{num_bytes / 1e9:.1f} GB"
