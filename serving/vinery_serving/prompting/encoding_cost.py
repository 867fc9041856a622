"""Which fast tokenizers surely encode a small text within milliseconds, and decode any token.

A tokenizer's file has patterns that may backtrack without end, and replacements that may grow a
text without limit. Only what is known to be harmless counts as quick; a worker process encodes with
other tokenizers.
"""

import base64
from typing import Any, Final

from tokenizers import Tokenizer as RawTokenizer

from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.token_bound import parts_of

_MAX_GROWTH: Final = 64
_MAX_TOKEN_CHARS: Final = 2**12
_MAX_WORD_CHARS: Final = 200  # WordPiece needs their square
_MAX_STATE_BYTES: Final = 2**16
_MAX_PARTS: Final = 16
_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Of tokenizers without the large vocabularies that take long to load: GPT-2, Llama 3, Qwen, and
# spaces that are joined.
_KNOWN: Final = frozenset(
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        *(rf"{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}", rf"{_WORDS}|\p{{N}}|{_MARKS}", " {2,}", r"\s+"),
    )
)


def check_decoder(raw: RawTokenizer) -> None:
    """Raises `UnusableFolder` for a tokenizer that may write texts without limit."""
    longest = max(map(len, raw.get_vocab(with_added_tokens=True)), default=0)
    state = b"" if raw.decoder is None else raw.decoder.__getstate__()
    is_small = longest <= _MAX_TOKEN_CHARS and len(state) <= _MAX_STATE_BYTES
    if not is_small or not _is_harmless(raw.decoder, "decoders"):
        raise UnusableFolder("The tokenizer's decoder may write more text than any model's.")


def is_quick(raw: RawTokenizer) -> bool:
    post = raw.post_processor
    if post is not None and len(post.__getstate__()) > _MAX_STATE_BYTES:
        return False
    if getattr(raw.model, "max_input_chars_per_word", 0) > _MAX_WORD_CHARS:
        return False
    return _is_harmless(raw.normalizer, "normalizers") and _is_harmless(
        raw.pre_tokenizer, "pretokenizers"
    )


def _is_harmless(component: Any, members: str) -> bool:
    growth, parts = 1.0, parts_of(component, members)
    for part in parts:
        pattern = part.get("pattern") or {}
        if isinstance(pattern, dict) and pattern.get("Regex", r"\s+") not in _KNOWN:
            return False
        if part["type"] == "Replace":
            replaced = pattern.get("String") or "a"
            growth *= max(1.0, len(part["content"]) / len(replaced))
        if part["type"] == "Precompiled":
            growth *= _longest_mapped(part["precompiled_charsmap"])
    return growth <= _MAX_GROWTH and len(parts) <= _MAX_PARTS


def _longest_mapped(charsmap: str) -> int:
    """The length of the longest text that a character becomes: after the size of a table and the
    table come texts that end in zero."""
    data = base64.b64decode(charsmap)
    start = 4 + int.from_bytes(data[:4], "little")
    return max(map(len, data[start:].split(b"\0")))
