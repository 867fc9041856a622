"""Which fast tokenizers surely encode a small text within milliseconds, and decode any token.

A tokenizer's file has patterns that may backtrack without end, and replacements that may grow a
text without limit. Only what is known to be harmless counts as quick; a worker process encodes with
other tokenizers.
"""

import base64
import re
from collections.abc import Sequence
from typing import Any, Final

from tokenizers import Tokenizer as RawTokenizer

from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.token_bound import parts_of

_MAX_GROWTH: Final = 64
_MAX_TOKEN_CHARS: Final = 2**12
_MAX_WORD_CHARS: Final = 200  # WordPiece needs their square
_MAX_STATE_BYTES: Final = 2**16
_MAX_PATTERN_CHARS: Final = 4096
_MAX_PARTS: Final = 16
# What stands between `|` in the patterns of GPT-2 to GPT-4o, Llama 3, Qwen, Phi, Mistral, DeepSeek
# 3, GLM, Falcon, Bloom and others: first a loop without backtracking, then literal parts.
_ONE: Final = r"(?: |\\[sd]|\\[pP]\{\w+\}|\[\^?(?:[^][\\&]|\\[^cCM])+\])"
_LOOP: Final = rf"(?:{_ONE}\?\+?)?{_ONE}(?:\+\+?|\{{1\}}|\{{1,3\}})?(?:{_ONE}\*)?"
_ENDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER: Final = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_KNOWN: Final = (
    *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", _ENDS, r"'(?i:[sdmt]|ll|ve|re)"),
    *(f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*"),
    *(f"{_UPPER}*{_LOWER}+{_ENDS}?", f"{_UPPER}+{_LOWER}*{_ENDS}?"),
    *(r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+(?!\S)", " {2,}", "[0-9][0-9][0-9]"),
    *(r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"),  # noqa: RUF001
)
_PART: Final = re.compile(rf"({'|'.join([_LOOP, *map(re.escape, _KNOWN)])})(?:\||$)")


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
    known: list[str | None] = []
    for part in parts:
        pattern = part.get("pattern") or {}
        if isinstance(pattern, dict) and "Regex" in pattern:
            known += _known_parts(pattern["Regex"])
        if part["type"] == "Replace":
            replaced = pattern.get("String") or "a"
            growth *= max(1.0, len(part["content"]) / len(replaced))
        if part["type"] == "Precompiled":
            growth *= _longest_mapped(part["precompiled_charsmap"])
    # A part that may take the square of a text stands there once.
    is_known = len(known) == len(set(known)) and None not in known
    return is_known and growth <= _MAX_GROWTH and len(parts) <= _MAX_PARTS


def _longest_mapped(charsmap: str) -> int:
    """The length of the longest text that a character becomes: after the size of a table and the
    table come texts that end in zero."""
    data = base64.b64decode(charsmap)
    start = 4 + int.from_bytes(data[:4], "little")
    return max(map(len, data[start:].split(b"\0")))


def _known_parts(pattern: str) -> Sequence[str | None]:
    """What stands between `|` in a pattern, with None if any of this is not known."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return [None]
    written = pattern.replace("\r", r"\r").replace("\n", r"\n")
    found = [each[0] for each in _PART.finditer(written)]
    return [None] if "".join(found) != written else [each.removesuffix("|") for each in found]
