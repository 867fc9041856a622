"""Makes a folder that can be served of a GGUF file.

OpenVINO GenAI reads three architectures, and writes model and tokenizer in OpenVINO's format beside
the file. What the gateway reads beside them follows from the file's metadata: the configuration,
the chat template and the special tokens.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vinery_serving.models.hub.architectures import GGUF_ARCHITECTURES
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.gguf import read_metadata

_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Keys of config.json, and those of the metadata behind the name of the architecture.
_CONFIG: Final = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "hidden_size": "embedding_length",
}
_TOKENS: Final = ("bos", "eos", "padding")
_WRITTEN: Final = (
    *("openvino_model.xml", "openvino_model.bin"),
    *("openvino_tokenizer.xml", "openvino_tokenizer.bin"),
    *("openvino_detokenizer.xml", "openvino_detokenizer.bin"),
)


def checked_metadata(file: Path) -> dict[str, Any]:
    """Return the metadata of a file that GenAI reads. Raises `PullFailed` for another one."""
    metadata = read_metadata(file)
    found = metadata.get("general.architecture")
    if found not in GGUF_ARCHITECTURES:
        raise PullFailed(
            f"OpenVINO GenAI reads GGUF files of the architectures {', '.join(GGUF_ARCHITECTURES)},"
            f" and this one is {found or 'of none that it names'}. Look for the same model in "
            "OpenVINO's format."
        )
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise PullFailed(
            f"OpenVINO GenAI reads GGUF files with a tokenizer of the kind gpt2, and this one is "
            f"{metadata.get('tokenizer.ggml.model')}."
        )
    return metadata


def convert(file: Path) -> None:
    """Write the files of a folder that can be served beside a GGUF file. Loads the model. Raises
    `PullFailed`."""
    import openvino_genai  # large, and for the process of a job only

    metadata = checked_metadata(file)
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
    """Write config.json, tokenizer_config.json and the chat template."""
    name = metadata["general.architecture"]
    config = {
        key: metadata[f"{name}.{own}"]
        for key, own in _CONFIG.items()
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
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _TOKENS}
    named = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token"}
    return {
        named[name]: tokens[id_]
        for name, id_ in ids.items()
        if isinstance(id_, int) and 0 <= id_ < len(tokens)
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
