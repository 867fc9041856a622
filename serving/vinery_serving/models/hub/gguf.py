"""Reads the metadata of a GGUF file, and makes a folder that can be served.

The format is GGUF's version 2 or 3, see the specification in the repository ggml-org/ggml: a
header, keys with values, and where the weights end. OpenVINO GenAI reads three architectures, and
writes model and tokenizer in OpenVINO's format beside the file. The gateway's files follow from the
metadata: the configuration, the chat template and the special tokens.
"""

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from vinery_serving.models.hub.errors import PullFailed

_MAX_ITEMS: Final = 4_000_000  # of all lists; the largest vocabularies have some hundred thousand
_STRING: Final = 8
_ARRAY: Final = 9
# Formats of `struct` by the numbers of the types.
_NUMBERS: Final = {
    **dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?"))),
    10: "<Q",
    11: "<q",
    12: "<d",
}
# Values and bytes of a block of weights, by the numbers of the types that GenAI reads: F32, F16,
# Q4_0, Q4_1, Q8_0, Q4_K, Q6_K.
_BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    8: (32, 34),
    12: (256, 144),
    14: (256, 210),
}


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the keys and values of a file. Raises `PullFailed` for a file that is no GGUF, is cut,
    or has weights of a kind that GenAI does not read."""
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except (struct.error, KeyError, ArithmeticError, ValueError):
        raise PullFailed(f"{path.name} is no GGUF file, or is damaged.") from None


def _header(file: BinaryIO) -> tuple[int, int]:
    if file.read(4) != b"GGUF" or _number(file, "<I") not in (2, 3):
        raise ValueError
    num_tensors, num_keys = _number(file, "<Q"), _number(file, "<Q")
    if num_keys > 4096 or num_tensors > 100_000:
        raise ValueError
    return num_tensors, num_keys


def _pairs(file: BinaryIO, num_keys: int) -> Iterator[tuple[str, Any]]:
    num_items = 0
    for _ in range(num_keys):
        key = _text(file)
        value = _value(file, _number(file, "<I"), _MAX_ITEMS - num_items)
        num_items += len(value) if isinstance(value, list) else 0
        yield key, value


def _read(file: BinaryIO, path: Path) -> dict[str, Any]:
    num_tensors, num_keys = _header(file)
    metadata = dict(_pairs(file, num_keys))
    name = metadata.get("general.architecture")
    kinds = {**_KINDS, **{f"{name}.{own}": int for own in _CONFIG_KEYS.values()}}
    if not all(isinstance(metadata.get(key, kind()), kind) for key, kind in kinds.items()):
        raise ValueError
    end = max((_tensor_end(file, path) for _ in range(num_tensors)), default=0)
    alignment = metadata.get("general.alignment", 32)
    start = -(-file.seek(0, os.SEEK_CUR) // alignment) * alignment
    if start + end > path.stat().st_size:
        raise ValueError
    return metadata


def _tensor_end(file: BinaryIO, path: Path) -> int:
    """Read the entry of a tensor, and return where its weights end in the part of weights. GenAI
    would read beyond the end of a cut file."""
    name, num_dimensions = _text(file), _number(file, "<I")
    if num_dimensions > 8:
        raise ValueError
    num_values = math.prod(_number(file, "<Q") for _ in range(num_dimensions))
    kind, offset = _number(file, "<I"), _number(file, "<Q")
    if kind not in _BLOCKS:
        raise PullFailed(
            f"{path.name} has weights of a kind that OpenVINO GenAI does not read ({name}: type "
            f"{kind}). It reads F32, F16, Q4_0, Q4_1, Q8_0, Q4_K and Q6_K."
        )
    values, num_bytes = _BLOCKS[kind]
    return int(offset + num_values // values * num_bytes)


def _value(file: BinaryIO, kind: int, max_items: int = _MAX_ITEMS) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _number(file, _NUMBERS[kind])
    item_kind, length = _number(file, "<I"), _number(file, "<Q")
    if item_kind == _ARRAY or length > max_items:
        raise ValueError
    return [_value(file, item_kind) for _ in range(length)]


def _text(file: BinaryIO) -> str:
    length = _number(file, "<Q")
    if length > 8 << 20 or file.tell() > 64 << 20:
        raise ValueError
    content = file.read(length)
    if len(content) < length:
        raise ValueError
    return content.decode()


def _number(file: BinaryIO, form: str) -> Any:
    (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return value


# The classes of the three architectures that GenAI reads.
_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Keys of config.json, and keys of the metadata behind the name of the architecture.
_CONFIG_KEYS: Final = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "hidden_size": "embedding_length",
}
# Names in the metadata and in tokenizer_config.json.
_TOKENS: Final = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token"}
_KINDS: Final[Mapping[str, type]] = {
    "general.architecture": str,
    "general.alignment": int,
    "tokenizer.ggml.model": str,
    "tokenizer.ggml.tokens": list,
    "tokenizer.chat_template": str,
    **{f"tokenizer.ggml.{name}_token_id": int for name in _TOKENS},
}
_WRITTEN: Final = (
    *("openvino_model.xml", "openvino_model.bin"),
    *("openvino_tokenizer.xml", "openvino_tokenizer.bin"),
    *("openvino_detokenizer.xml", "openvino_detokenizer.bin"),
)


def wrong_architecture(found: str | None) -> str:
    """The reason why GenAI does not read such a file; empty: it does."""
    if found in _CLASSES:
        return ""
    return (
        f"OpenVINO GenAI reads GGUF files of the architectures {', '.join(_CLASSES)}, and this one "
        f"is {found or 'of none that it names'}. Look for the same model in OpenVINO's format."
    )


def convert(file: Path) -> None:
    """Write what can be served beside a GGUF file. Loads the model. Raises `PullFailed`."""
    import openvino_genai  # large, and for the process of a job only

    metadata = read_metadata(file)
    if reason := wrong_architecture(metadata.get("general.architecture")):
        raise PullFailed(reason)
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise PullFailed(
            f"OpenVINO GenAI reads GGUF files with a tokenizer of the kind gpt2, and this one is "
            f"{metadata.get('tokenizer.ggml.model')}."
        )
    for name in _WRITTEN:  # of a process that was killed
        (file.parent / name).unlink(missing_ok=True)
    try:
        openvino_genai.LLMPipeline(str(file), "CPU", enable_save_ov_model=True)
    except RuntimeError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise PullFailed(f"OpenVINO GenAI cannot read {file.name}: {reason}") from None
    missing = [name for name in _WRITTEN if not (file.parent / name).is_file()]
    if missing:
        raise PullFailed(f"OpenVINO GenAI wrote no {missing[0]} for {file.name}.")
    write_configuration(file.parent, metadata)


def write_configuration(folder: Path, metadata: Mapping[str, Any]) -> None:
    name = metadata["general.architecture"]
    config = {
        key: metadata[f"{name}.{own}"]
        for key, own in _CONFIG_KEYS.items()
        if f"{name}.{own}" in metadata
    }
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    known = {"model_type": name, "architectures": [_CLASSES[name]], "eos_token_id": eos}
    _write(folder / "config.json", {**known, **config})
    _write(folder / "tokenizer_config.json", _special_tokens(metadata))
    if template := metadata.get("tokenizer.chat_template"):
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _special_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    ids = {own: metadata.get(f"tokenizer.ggml.{name}_token_id") for name, own in _TOKENS.items()}
    return {
        own: tokens[id_]
        for own, id_ in ids.items()
        if isinstance(id_, int) and 0 <= id_ < len(tokens) and isinstance(tokens[id_], str)
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
