"""Reads from the files of a model's folder how the model is prompted.

Only JSON, XML and text are read, so a folder can be checked before it is served.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, get_type_hints
from xml.etree import ElementTree

from vinery_serving.core.request import Sampling

_MODEL_FILES = ("openvino_model.xml", "openvino_language_model.xml")
FAST_TOKENIZER = "tokenizer.json"
VINO_TOKENIZER = "openvino_tokenizer.xml"

# In order of preference. `sliding_window` does not limit the context: Gemma 3's configuration
# names only that key (1,024), and the model reads 131,072 tokens.
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_len", "seq_length", "n_ctx")
_SANE_CONTEXT = 1 << 28  # Tokenizers without a limit have a `model_max_length` of 10^30

# Longer than the file of any model.
_MAX_CONFIG_BYTES = 32 * 2**20
_MAX_TOKENIZER_BYTES = 512 * 2**20
TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class UnusableFolder(Exception):
    """The folder cannot be served. The message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class GenerationDefaults(Sampling):
    """The sampling values in `generation_config.json`. None: the file has no value."""

    do_sample: bool | None = None
    max_new_tokens: int | None = None
    # Including the end tokens of config.json. Each token ends a generation.
    eos_token_ids: tuple[int, ...] = ()
    # Speculative decoding, by the names that OpenVINO GenAI uses.
    num_assistant_tokens: int | None = None
    assistant_confidence_threshold: float | None = None
    max_ngram_size: int | None = None


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """Jinja texts. `tools` renders requests with tools, if the folder has such a template."""

    default: str
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFolder:
    path: Path
    model_type: str | None = None
    max_context: int | None = None  # Prompt and output tokens together. None: unknown.
    defaults: GenerationDefaults = GenerationDefaults()
    templates: ChatTemplates | None = None
    # Special tokens by the names that templates use, such as `bos_token`.
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    # From tokenizer_config.json: the class in Hugging Face's library, and the tokens that were
    # added to the vocabulary, by id.
    tokenizer_class: str | None = None
    added_tokens: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | str, chat_template: str = "", *, has_templates: bool = True) -> Self:
        """Raises `UnusableFolder` when a file is missing or broken. `chat_template` replaces the
        templates of the folder, as the option of this name: a text, or an absolute path. Without
        templates only small JSON is read."""
        path = Path(path)
        _check_files(path)
        config = read_object(path / "config.json")
        tokenizer_config = read_object(path / "tokenizer_config.json")
        return cls(
            path=path,
            model_type=_string(config.get("model_type")),
            max_context=_max_context(config, tokenizer_config),
            defaults=_defaults(read_object(path / "generation_config.json"), config),
            templates=own_templates(chat_template)
            or (templates_of(path, tokenizer_config) if has_templates else None),
            named_tokens=_named_tokens(path, tokenizer_config),
            tokenizer_class=_string(tokenizer_config.get("tokenizer_class")),
            added_tokens=_added_tokens(tokenizer_config.get("added_tokens_decoder")),
        )


def _check_files(path: Path) -> None:
    if not path.is_dir():
        raise UnusableFolder(f"There is no folder {path}.")
    if not any((path / name).is_file() for name in _MODEL_FILES):
        names = " or ".join(_MODEL_FILES)
        raise UnusableFolder(f"{path} has no {names}: it is not an exported OpenVINO model.")
    if not any((path / name).is_file() for name in (FAST_TOKENIZER, VINO_TOKENIZER)):
        raise UnusableFolder(
            f"{path} has no tokenizer: neither {FAST_TOKENIZER} nor {VINO_TOKENIZER}."
        )
    for name in (FAST_TOKENIZER, "openvino_tokenizer.bin", "openvino_detokenizer.bin"):
        _check_size(path / name, _MAX_TOKENIZER_BYTES)


def _check_size(path: Path, max_bytes: int = _MAX_CONFIG_BYTES) -> None:
    """Raises `UnusableFolder`, also for what is no file: a pipe would never end."""
    if path.is_file() and path.stat().st_size > max_bytes:
        raise UnusableFolder(f"{path} is larger than {max_bytes >> 20} MB.")
    if path.exists() and not path.is_file():
        raise UnusableFolder(f"{path} is not a file.")


def _max_context(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """The smaller of the model's limit and the tokenizer's limit."""
    text_config = config.get("text_config")
    sources = [config, text_config if isinstance(text_config, dict) else {}]
    found = [_number(source, key) for key in _CONTEXT_KEYS for source in sources]
    limits = [limit for limit in found if limit][:1]
    limits += [_number(tokenizer_config, "model_max_length") or _SANE_CONTEXT]
    limit = int(min(limits))
    return limit if limit < _SANE_CONTEXT else None


def _defaults(generation: Mapping[str, Any], config: Mapping[str, Any]) -> GenerationDefaults:
    do_sample = generation.get("do_sample")
    values: dict[str, Any] = {}
    hints = get_type_hints(GenerationDefaults)
    del hints["seed"]  # a seed for all requests would give equal answers
    for key, kind in hints.items():
        if kind == float | None:
            values[key] = _number(generation, key)
        elif kind == int | None:
            number = _number(generation, key)
            values[key] = None if number is None else int(number)
    return GenerationDefaults(
        do_sample=do_sample if isinstance(do_sample, bool) else None,
        eos_token_ids=_token_ids(generation, "eos_token_id") or _token_ids(config, "eos_token_id"),
        **values,
    )


def own_templates(source: str) -> ChatTemplates | None:
    """Return the template that the option chat_template names; None: it is empty. Raises
    `UnusableFolder` for a path without a file."""
    if not source.startswith("/"):
        return ChatTemplates(source) if source else None
    text = read_text(Path(source))
    if text is None:
        raise UnusableFolder(f"There is no file {source}, which the option chat_template names.")
    return ChatTemplates(text)


def templates_of(path: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplates | None:
    """The templates of the first file that has any, in the order of Hugging Face's look-up."""
    tools = read_text(path / "additional_chat_templates" / "tool_use.jinja")
    default = read_text(path / "chat_template.jinja")
    if default is not None:
        return ChatTemplates(default, tools)
    for value in (
        tokenizer_config.get("chat_template"),
        read_object(path / "chat_template.json").get("chat_template"),
        _read_vino_notes(path / VINO_TOKENIZER).get("chat_template"),
    ):
        if value:
            return _parsed_templates(value, path)
    return None


def _parsed_templates(value: Any, path: Path) -> ChatTemplates:
    if isinstance(value, str):
        return ChatTemplates(value)
    try:
        by_name = {str(named["name"]): str(named["template"]) for named in value}
    except (KeyError, TypeError) as error:
        raise UnusableFolder(
            f"The chat_template of {path} is neither a text nor a list of named texts."
        ) from error
    tools = by_name.get("tool_use")
    default = by_name.get("default", tools)
    if default is None:
        raise UnusableFolder(f"{path} names chat templates, but none of them 'default'.")
    return ChatTemplates(default, tools)


def _named_tokens(path: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    older = read_object(path / "special_tokens_map.json")
    named = {}
    for key in TOKEN_KEYS:
        value = tokenizer_config.get(key) or older.get(key)
        token = _string(value.get("content") if isinstance(value, dict) else value)
        if token:
            named[key] = token
    return named


def _added_tokens(value: Any) -> Mapping[str, Any]:
    members = value.items() if isinstance(value, dict) else ()
    return {id_: token for id_, token in members if isinstance(token, dict)}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(source: Mapping[str, Any], key: str) -> float | None:
    """A number; None when it is absent or null. Raises `UnusableFolder` for other types."""
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableFolder(f"The model's {key} must be a number, not {value!r}.")
    return value


def _token_ids(source: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One id or a list of ids; empty when absent or null. Raises `UnusableFolder`."""
    value = source.get(key)
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(id_, int) and id_ >= 0 for id_ in ids):
        raise UnusableFolder(f"The model's {key} must be token ids, not {value!r}.")
    return tuple(ids)


def read_text(path: Path) -> str | None:
    """The text of a file; None when there is none. Raises `UnusableFolder` if unreadable."""
    _check_size(path)
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFolder(f"{path} cannot be read: {error}.") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty when there is no file. Raises `UnusableFolder`."""
    value = read_value(path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnusableFolder(f"{path} must hold a JSON object.")
    return value


def read_value(path: Path) -> Any:
    text = read_text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableFolder(f"{path} is broken JSON: {error}.") from error


def _read_vino_notes(path: Path) -> Mapping[str, str]:
    """The `rt_info` values that OpenVINO's exporter wrote into a model's XML; empty when there
    is no file. Raises `UnusableFolder` for broken XML."""
    if not path.is_file():
        return {}
    _check_size(path)
    try:
        notes = ElementTree.parse(path).getroot().find("rt_info")
    except (OSError, ElementTree.ParseError) as error:
        raise UnusableFolder(f"{path} is broken XML: {error}.") from error
    if notes is None:
        return {}
    return {note.tag: note.attrib["value"] for note in notes if "value" in note.attrib}
