"""Which fast tokenizers surely encode a small text within milliseconds, and decode any token.

A tokenizer's file has patterns that may backtrack without end, and replacements that may grow a
text without limit. Only what is known to be harmless counts as quick; others encode in a worker.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from tokenizers import Tokenizer as RawTokenizer

from vinery_serving.prompting.folder import UnusableFolder

_MAX_TOKEN_CHARS: Final = 2**12
_MAX_WORD_CHARS: Final = 200  # WordPiece needs their square
_MAX_STATE_BYTES: Final = 2**16
_MAX_PARTS: Final = 16
_MAX_PREPENDED_CHARS: Final = 8
_QUICK: Final = (
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Strip"),
    *("StripAccents", "BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation"),
    *("UnicodeScripts", "Whitespace", "WhitespaceSplit"),
)
_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Of GPT-2, Llama 3 and Qwen. Others have large vocabularies, which a worker encodes with anyway.
_KNOWN: Final = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    *(rf"{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}", rf"{_WORDS}|\p{{N}}|{_MARKS}"),
)


def check_decoder(raw: RawTokenizer) -> None:
    """Raises `UnusableFolder` for a tokenizer that may write texts without limit."""
    longest = max(map(len, raw.get_vocab(with_added_tokens=True)), default=0)
    parts = _parts_of(raw.decoder, "decoders")
    grows = any(part["type"] == "Replace" and not _keeps_length(part) for part in parts)
    if grows or longest > _MAX_TOKEN_CHARS or not _is_small(raw.decoder):
        raise UnusableFolder("The tokenizer's decoder may write more text than any model's.")


def is_quick(raw: RawTokenizer) -> bool:
    normalizers = _parts_of(raw.normalizer, "normalizers")
    parts = [*normalizers, *_parts_of(raw.pre_tokenizer, "pretokenizers")]
    word_chars = getattr(raw.model, "max_input_chars_per_word", 0)
    is_short = len(parts) <= _MAX_PARTS and word_chars <= _MAX_WORD_CHARS
    return is_short and _is_small(raw.post_processor) and all(map(_is_quick_part, parts))


def _is_quick_part(part: dict[str, Any]) -> bool:
    if part["type"] == "Split":
        return part["pattern"].get("Regex") in _KNOWN
    if part["type"] == "Replace":
        return _keeps_length(part)
    return part["type"] in _QUICK and len(part.get("prepend", "")) <= _MAX_PREPENDED_CHARS


def _keeps_length(part: dict[str, Any]) -> bool:
    return len(part["content"]) <= len(part["pattern"].get("String", ""))


def _is_small(component: Any) -> bool:
    return component is None or len(component.__getstate__()) <= _MAX_STATE_BYTES


def _parts_of(component: Any, members: str) -> list[dict[str, Any]]:
    """Return the settings of a component of the library, or of all components in a sequence."""
    return [] if component is None else list(_flat(json.loads(component.__getstate__()), members))


def _flat(settings: dict[str, Any], members: str) -> Iterable[dict[str, Any]]:
    if settings["type"] != "Sequence":
        yield settings
        return
    for each in settings[members]:
        yield from _flat(each, members)
