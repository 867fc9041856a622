"""The fewest tokens that a text can have, computed from its bytes.

A token stands for some bytes of the text, at most as many as the vocabulary's longest token. That
holds for tokenizers that lose nothing: each byte has a token, and normalizing shortens a text by a
known factor at most. For all other tokenizers the bound is 0.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as RawTokenizer
from tokenizers.pre_tokenizers import ByteLevel

# The most by which each normalizer shortens the UTF-8 of a text. With NFC, three letters of Hangul
# become one, and signs of three bytes ASCII. NFKC also maps mathematical letters of four bytes.
_FACTORS: Final[Mapping[str, int]] = {"NFC": 3, "NFD": 3, "NFKC": 4, "NFKD": 4, "Prepend": 1}
# Pre-tokenizers that cut a text, and drop nothing.
_SPLITTERS: Final = frozenset(
    ("ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "UnicodeScripts")
)
# Operations of OpenVINO's tokenizers that shorten or drop text.
_LOSSY_OPERATION: Final = re.compile(
    r'type="\w*(?:Normaliz|CaseFold|CharsMap|Word|Unigram|Trie|VocabEncoder)\w*"'
    r'|behaviour="remove"'
)


@dataclass(frozen=True, slots=True)
class TokenBound:
    """The bound that a tokenizer's longest token gives for any text."""

    max_token_bytes: int | None = None  # None: texts of any length may be one token
    factor: int = 1  # by which texts other than ASCII may be shortened first
    ignores_space: bool = False  # Some special tokens include all white space beside them

    def least_tokens(self, text: str) -> int:
        """Return the fewest tokens of a text."""
        if self.max_token_bytes is None:
            return 0
        if self.ignores_space:
            text = "".join(text.split())
        num_bytes = len(text)
        if not text.isascii():
            num_bytes = len(text.encode(errors="replace")) // self.factor
        return -(-num_bytes // self.max_token_bytes)


NO_BOUND: Final = TokenBound()


def bound_of_fast(raw: RawTokenizer, vocabulary: Iterable[str]) -> TokenBound:
    """Return the bound of a tokenizer and its vocabulary, with added tokens."""
    splitters = parts_of(raw.pre_tokenizer, "pretokenizers")
    factor = _factor(parts_of(raw.normalizer, "normalizers"))
    names = list(vocabulary)
    if factor is None or type(raw.model).__name__ != "BPE":
        return NO_BOUND
    if any(
        part["type"] not in _SPLITTERS or str(part.get("behavior", "")).lower() == "removed"
        for part in splitters
    ):
        return NO_BOUND
    is_byte_level = any(part["type"] == "ByteLevel" for part in splitters)
    if not _knows_all_bytes(set(names), raw, is_byte_level=is_byte_level):
        return NO_BOUND
    added = raw.get_added_tokens_decoder().values()
    # A letter of a byte-level vocabulary is one byte. Added tokens are written as plain text.
    own = max(map(len, names)) if is_byte_level else max(len(name.encode()) for name in names)
    longest = max(own, *(len(token.content.encode()) for token in added), 1)
    return TokenBound(longest, factor, any(token.lstrip or token.rstrip for token in added))


def bound_of_vino(folder: Path, vocabulary: Iterable[bytes]) -> TokenBound:
    text = (folder / "openvino_tokenizer.xml").read_text(encoding="utf-8", errors="replace")
    tokens = set(vocabulary)
    is_lossless = 'type="BPETokenizer"' in text and not _LOSSY_OPERATION.search(text)
    if not is_lossless or not all(bytes([byte]) in tokens for byte in range(256)):
        return NO_BOUND
    return TokenBound(max(map(len, tokens)), ignores_space=True)


def parts_of(component: Any, members: str) -> list[dict[str, Any]]:
    """Return the settings of a component of the library, or of all components in a sequence."""
    return [] if component is None else list(_flat(json.loads(component.__getstate__()), members))


def _flat(settings: dict[str, Any], members: str) -> Iterable[dict[str, Any]]:
    if settings["type"] != "Sequence":
        yield settings
        return
    for each in settings[members]:
        yield from _flat(each, members)


def _factor(normalizers: Iterable[dict[str, Any]]) -> int | None:
    """The product of the factors; None: texts may become shorter without a limit."""
    product = 1
    for each in normalizers:
        if each["type"] == "Replace":
            found = each["pattern"].get("String")
            if found is not None and len(each["content"].encode()) >= len(found.encode()):
                continue  # it keeps the length
        if each["type"] not in _FACTORS:
            return None
        product *= _FACTORS[each["type"]]
    return product


def _knows_all_bytes(names: set[str], raw: RawTokenizer, *, is_byte_level: bool) -> bool:
    """Whether no byte of a text is unknown: unknown bytes may be dropped, or be one token."""
    if is_byte_level:
        return names.issuperset(ByteLevel.alphabet())
    has_fallback = bool(getattr(raw.model, "byte_fallback", False))
    return has_fallback and all(f"<0x{byte:02X}>" in names for byte in range(256))
