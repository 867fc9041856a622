"""What the files of a model's folder say about how to prompt the model.

Nothing is loaded here but JSON and text, so a folder can be looked at before it is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from serving.prompting.errors import UnusableFolder
from serving.prompting.files import number, read_object, read_text, read_vino_notes, token_ids

_MODEL_FILES = ("openvino_model.xml", "openvino_language_model.xml")
FAST_TOKENIZER = "tokenizer.json"
VINO_TOKENIZER = "openvino_tokenizer.xml"

# In the order of trust. `sliding_window` is no limit of a context: Gemma 3 names only
# that one (1,024) and reads 131,072 tokens.
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_len", "seq_length", "n_ctx")

# Tokenizers without a limit of their own say 10^30.
_SANE_CONTEXT = 1 << 28

TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """`generation_config.json`: how the model's authors sample. None: they do not say."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_new_tokens: int | None = None
    # Also those of config.json. Generation ends with any of them.
    eos_token_ids: tuple[int, ...] = ()
    # How far ahead tokens are proposed, in GenAI's words.
    num_assistant_tokens: int | None = None
    assistant_confidence_threshold: float | None = None
    max_ngram_size: int | None = None


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """Jinja texts. `tools` is for requests with tools, where the authors wrote another."""

    default: str
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that can be served."""

    path: Path
    model_type: str | None = None
    # Tokens, prompt and output together. None: the folder does not say.
    max_context: int | None = None
    defaults: GenerationDefaults = GenerationDefaults()
    templates: ChatTemplates | None = None
    # By the names that templates use, such as `bos_token`.
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    # As the tokenizer's configuration has them: its class in Hugging Face's library, and the
    # tokens that were added to the vocabulary, by id.
    tokenizer_class: str | None = None
    added_tokens: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Raises `UnusableFolder` when something is missing or broken."""
        path = Path(path)
        _check_files(path)
        config = read_object(path / "config.json")
        tokenizer_config = read_object(path / "tokenizer_config.json")
        return cls(
            path=path,
            model_type=_string(config.get("model_type")),
            max_context=_max_context(config, tokenizer_config),
            defaults=_defaults(read_object(path / "generation_config.json"), config),
            templates=_templates(path, tokenizer_config),
            named_tokens=_named_tokens(path, tokenizer_config),
            tokenizer_class=_string(tokenizer_config.get("tokenizer_class")),
            added_tokens=_added_tokens(tokenizer_config.get("added_tokens_decoder")),
        )

    @property
    def has_fast_tokenizer(self) -> bool:
        """Whether there is a `tokenizer.json` beside OpenVINO's own tokenizer."""
        return (self.path / FAST_TOKENIZER).is_file()

    @property
    def eos_text(self) -> str | None:
        """The token that the tokenizer calls the end of a text."""
        return self.named_tokens.get("eos_token")


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


def _max_context(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """The smaller of what the model and what the tokenizer say."""
    text_config = config.get("text_config")
    places = [config, text_config if isinstance(text_config, dict) else {}]
    found = [number(place, key) for key in _CONTEXT_KEYS for place in places]
    limits = [limit for limit in found if limit][:1]
    limits += [number(tokenizer_config, "model_max_length") or _SANE_CONTEXT]
    limit = int(min(limits))
    return limit if limit < _SANE_CONTEXT else None


def _defaults(generation: Mapping[str, Any], config: Mapping[str, Any]) -> GenerationDefaults:
    do_sample = generation.get("do_sample")
    return GenerationDefaults(
        do_sample=do_sample if isinstance(do_sample, bool) else None,
        temperature=number(generation, "temperature"),
        top_p=number(generation, "top_p"),
        top_k=_whole(generation, "top_k"),
        min_p=number(generation, "min_p"),
        repetition_penalty=number(generation, "repetition_penalty"),
        presence_penalty=number(generation, "presence_penalty"),
        frequency_penalty=number(generation, "frequency_penalty"),
        max_new_tokens=_whole(generation, "max_new_tokens"),
        num_assistant_tokens=_whole(generation, "num_assistant_tokens"),
        assistant_confidence_threshold=number(generation, "assistant_confidence_threshold"),
        max_ngram_size=_whole(generation, "max_ngram_size"),
        eos_token_ids=token_ids(generation, "eos_token_id") or token_ids(config, "eos_token_id"),
    )


def _templates(path: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplates | None:
    """From the first place that has any, in the order of Hugging Face's own look-up."""
    tools = read_text(path / "additional_chat_templates" / "tool_use.jinja")
    default = read_text(path / "chat_template.jinja")
    if default is not None:
        return ChatTemplates(default, tools)
    for said in (
        tokenizer_config.get("chat_template"),
        read_object(path / "chat_template.json").get("chat_template"),
        read_vino_notes(path / VINO_TOKENIZER).get("chat_template"),
    ):
        if said:
            return _said_templates(said, path)
    return None


def _said_templates(said: Any, path: Path) -> ChatTemplates:
    if isinstance(said, str):
        return ChatTemplates(said)
    try:
        by_name = {str(named["name"]): str(named["template"]) for named in said}
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
    """The tokenizer's configuration first, then the older file beside it."""
    older = read_object(path / "special_tokens_map.json")
    tokens = {key: _token(tokenizer_config.get(key) or older.get(key)) for key in TOKEN_KEYS}
    return {key: token for key, token in tokens.items() if token}


def _added_tokens(said: Any) -> Mapping[str, Any]:
    members = said.items() if isinstance(said, dict) else ()
    return {id_: token for id_, token in members if isinstance(token, dict)}


def _token(said: Any) -> str | None:
    return _string(said.get("content") if isinstance(said, dict) else said)


def _string(said: Any) -> str | None:
    return said if isinstance(said, str) else None


def _whole(place: Mapping[str, Any], key: str) -> int | None:
    value = number(place, key)
    return None if value is None else int(value)
