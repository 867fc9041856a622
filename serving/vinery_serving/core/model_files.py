"""What the files of a model show unread, their state and the size of the weights, and the sizes in
its configuration."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

COPIES: Final = ".copies"
FolderState = tuple[tuple[str, int, int, int], ...]
"""The path, size, modification time and inode of each file."""


def folders_of(folder: str, options: Mapping[str, Any]) -> Sequence[Path]:
    """Return the folders of the model, of its draft model and of the adapters."""
    given = options.get("adapters")
    adapters = [each.get("path") for each in given or () if isinstance(each, dict)]
    paths = (folder, options.get("draft_model"), options.get("eagle3_head"), *adapters)
    named = [Path(each) for each in paths if each and isinstance(each, str)]
    is_file = [each.suffix == ".safetensors" or each.is_file() for each in named]
    return [each.parent if file else each for each, file in zip(named, is_file, strict=True)]


def copy_of(folder: str) -> str:
    """Return where in the folder of the models a host keeps a stored folder that it fetches."""
    return f"{COPIES}{folder}" if folder.startswith("/") else folder


def folder_state(folders: Iterable[Path]) -> FolderState:
    """Return the state of all files directly in these folders; none of an unreadable folder. Files
    may stand for folders."""
    return tuple(sorted(each for folder in folders for each in _files(folder)))


def _files(folder: Path) -> list[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as entries:
            return [(each.path, *_stamps(each)) for each in entries]
    except NotADirectoryError:
        return [(str(folder), *_stamps(folder))]
    except OSError:
        return []


def _stamps(entry: os.DirEntry[str] | Path) -> tuple[int, int, int]:
    try:
        found = entry.stat()
    except OSError:
        return 0, 0, 0
    return found.st_size, found.st_mtime_ns, found.st_ino


def weights_bytes_of(folder: Path) -> int:
    """Return the size of all weights files; 0 for a folder that cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        weights = (each for each in entries if each.name.endswith((".bin", ".gguf")))
        return sum(each.stat().st_size for each in weights)
    return 0


def kv_numbers_of_token(config: Mapping[str, Any]) -> int:
    """Return how many numbers a token has in the KV cache; 0 if config.json does not show it."""
    text, layers = _text_config(config), layers_of(config)
    heads = _first(text, "num_attention_heads", "n_head")
    hidden = _first(text, "hidden_size", "n_embd", "d_model")
    kv_heads = _first(text, "num_key_value_heads", "multi_query_group_num") or heads
    head_size = _first(text, "head_dim", "kv_channels") or (hidden // heads if heads else 0)
    return 2 * layers * kv_heads * head_size


def layers_of(config: Mapping[str, Any]) -> int:
    """Return the layers of the language model; 0 if config.json does not name them."""
    return _first(_text_config(config), "num_hidden_layers", "n_layer", "num_layers")


def context_of(config: Mapping[str, Any]) -> int:
    """Return the most tokens of a conversation; 0 if config.json does not name it."""
    text = _text_config(config)
    return _first(text, "max_position_embeddings", "n_positions", "seq_length", "n_ctx")


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a vision model's configuration that is about its language model."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return {**config, **config[key]}
    return config


def _first(config: Mapping[str, Any], *keys: str) -> int:
    """The first of these that is a sane number; 0: none is."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 28:
            return value
    return 0
