"""Text <-> token ids of one model, with the fast tokenizer or OpenVINO's.

Both encode the text of a special token as that token, as chat templates need. `encode` may
take seconds for a very long text: call it in a thread then. The fast tokenizer releases the
GIL meanwhile, OpenVINO's does not.

A tokenizer's file has patterns that may backtrack without end, and replacements that may grow a
text without limit. Only what is known to be harmless counts as quick; others encode in a worker.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

import msgspec
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.decoders import Fuse

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.prompting.budget import OverBudget
from vinery_serving.prompting.folder import FAST_TOKENIZER, ModelFolder, UnusableFolder

_SENTENCEPIECE_SPACE = "\u2581"


def _byte_letters() -> dict[str, int]:
    """The byte of each letter in a byte-level vocabulary. GPT-2's rule: printable bytes are
    their own letter, the others are code points from 256 on, in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTE_OF_LETTER = _byte_letters()

# The library lets no other thread of a process run meanwhile. 150,000 tokens take 0.8 s. A file
# that takes longer than the first time is refused; after the second, the web process gets a list.
_MAX_LOAD_S = 3
_LONG_LOAD_S = 0.1
_NAMES_OF_PART = 2**14
_SHORT_CHARS = 4_000  # Encoding so many characters takes well under a millisecond


@dataclass(frozen=True, slots=True)
class TokenList:
    """What decoding with a fast tokenizer needs, without what encoding needs."""

    # JSON lists of the spellings by id; null: there is no such token. A part is read at once.
    names: tuple[bytes, ...]
    added_ids: frozenset[int]
    decoder: bytes | None  # as the library writes it

    @classmethod
    def of(cls, raw: RawTokenizer, vocab_size: int) -> Self:
        names = [raw.id_to_token(id_) for id_ in range(vocab_size)]
        starts = range(0, vocab_size, _NAMES_OF_PART)
        return cls(
            tuple(msgspec.json.encode(names[start : start + _NAMES_OF_PART]) for start in starts),
            frozenset(raw.get_added_tokens_decoder()),
            None if raw.decoder is None else raw.decoder.__getstate__(),
        )


class _ListedTokens:
    """Has the library's methods that decode."""

    def __init__(self, listed: TokenList) -> None:
        parts = (msgspec.json.decode(part, type=list[str | None]) for part in listed.names)
        self._names = [name for part in parts for name in part]
        self._ids = {name: id_ for id_, name in enumerate(self._names)}
        self._added_ids = listed.added_ids
        self.decoder: Any = None
        if listed.decoder is not None:
            self.decoder = Fuse()
            self.decoder.__setstate__(listed.decoder)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: Literal[False]) -> str:
        names = [name for name in map(self.id_to_token, ids) if name is not None]
        return " ".join(names) if self.decoder is None else str(self.decoder.decode(names))

    def get_added_tokens_decoder(self) -> frozenset[int]:
        return self._added_ids

    def id_to_token(self, id_: int) -> str | None:
        return self._names[id_] if id_ < len(self._names) else None

    def token_to_id(self, name: str) -> int | None:
        return self._ids.get(name)


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    vocab_size: int  # ids are smaller than this
    eos_ids: frozenset[int]  # the tokens that end a generation
    special_texts: Mapping[int, str]  # the text of each special token, by id; includes `eos_ids`
    is_quick: bool  # whether any small text is encoded within milliseconds
    listed: TokenList | None = None  # of a tokenizer that takes long to load


class Tokenizer(ABC):
    raw: Any  # the library's object, for the decoders in `output`
    facts: TokenizerFacts
    is_frugal = False  # whether only a quick tokenizer may encode

    def check_quick(self) -> None:
        """Raises `OverBudget` where a worker process must encode."""
        if self.is_frugal and not self.facts.is_quick:
            raise OverBudget

    def encode(self, text: str) -> list[int]:
        """Return the ids of this text alone: for rendered chat templates."""
        self.check_quick()
        return self._encode(text, add_special_tokens=False)

    def encode_raw(self, text: str) -> list[int]:
        """Return the ids with the special tokens around a raw text, such as BOS."""
        self.check_quick()
        return self._encode(text, add_special_tokens=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of these tokens, special tokens included; invalid bytes as U+FFFD."""
        text: str = self.raw.decode(list(token_ids), skip_special_tokens=False)
        return text

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token, which may be a part of a character."""

    @abstractmethod
    def token_name(self, token_id: int) -> str:
        """Return the spelling of the token in the vocabulary, with letters for spaces and bytes."""

    @abstractmethod
    def token_id(self, name: str) -> int | None:
        """Return the id of a token by its spelling in the vocabulary; None when there is none."""

    @abstractmethod
    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


def load_tokenizer(
    folder: ModelFolder, facts: TokenizerFacts | None = None, *, is_frugal: bool = False
) -> Tokenizer:
    """Return the fast tokenizer if the folder has one. Without `facts` they are found out. Raises
    `UnusableFolder`."""
    has_fast = (folder.path / FAST_TOKENIZER).is_file()
    listed = facts.listed if facts is not None and is_frugal else None
    tokenizer = FastTokenizer(folder, facts, listed) if has_fast else VinoTokenizer(folder, facts)
    tokenizer.is_frugal = is_frugal
    return tokenizer


class FastTokenizer(Tokenizer):
    def __init__(
        self,
        folder: ModelFolder,
        facts: TokenizerFacts | None = None,
        listed: TokenList | None = None,
    ) -> None:
        """`listed` replaces the file."""
        begun_s, path = time.thread_time(), folder.path / FAST_TOKENIZER
        own = _read_fast(path) if listed is None else cast(Any, _ListedTokens(listed))
        self.raw: RawTokenizer = own
        load_s = time.thread_time() - begun_s
        if facts is None and load_s > _MAX_LOAD_S:
            raise UnusableFolder(f"{FAST_TOKENIZER} takes more than {_MAX_LOAD_S} s to load.")
        self._added_ids = frozenset(self.raw.get_added_tokens_decoder())
        # None: the file has no decoder, as with models that never write text.
        decoder = b"" if self.raw.decoder is None else self.raw.decoder.__getstate__()
        self._is_byte_level = b'"ByteLevel"' in decoder
        self._has_byte_tokens = b'"ByteFallback"' in decoder
        self.facts = facts or self._found(folder, is_slow=load_s > _LONG_LOAD_S)
        if listed is not None:
            self.facts = replace(self.facts, listed=None)  # nobody else needs the list

    def _found(self, folder: ModelFolder, *, is_slow: bool) -> TokenizerFacts:
        check_decoder(self.raw)
        vocabulary = self.raw.get_vocab(with_added_tokens=True)
        eos_ids = _eos_ids(folder, self.raw.token_to_id(folder.named_tokens.get("eos_token", "")))
        added = self.raw.get_added_tokens_decoder()
        special_ids = {id_ for id_, token in added.items() if token.special}
        vocab_size = 1 + max(vocabulary.values(), default=-1)
        return TokenizerFacts(
            vocab_size,
            eos_ids,
            {id_: self.decode([id_]) for id_ in special_ids | eos_ids},
            is_quick=not is_slow and is_quick(self.raw),
            listed=TokenList.of(self.raw, vocab_size) if is_slow else None,
        )

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """`encode` holds the GIL. `encode_batch_fast` does not, but it wakes threads, which
        costs more than encoding a short text."""
        try:
            if len(text) < _SHORT_CHARS:
                return self.raw.encode(text, add_special_tokens=add_special_tokens).ids
            return self.raw.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        except BaseException as error:  # a pattern took too long
            if type(error).__name__ != "PanicException":
                raise
            raise InvalidRequest("The model's tokenizer cannot encode this text.") from error

    def token_bytes(self, token_id: int) -> bytes:
        name = self.token_name(token_id)
        if self._is_byte_level:
            if token_id in self._added_ids:
                return name.encode()
            return bytes(_BYTE_OF_LETTER[letter] for letter in name)
        if self._has_byte_tokens and len(name) == len("<0x00>") and name.startswith("<0x"):
            return bytes.fromhex(name[3:5])
        return name.replace(_SENTENCEPIECE_SPACE, " ").encode()

    def token_name(self, token_id: int) -> str:
        return self.raw.id_to_token(token_id) or ""

    def token_id(self, name: str) -> int | None:
        return self.raw.token_to_id(name)


class VinoTokenizer(Tokenizer):
    def __init__(self, folder: ModelFolder, facts: TokenizerFacts | None = None) -> None:
        self.raw = _read_vino(folder.path)
        self.facts = facts or self._found(folder)

    def _found(self, folder: ModelFolder) -> TokenizerFacts:
        vocabulary = self.raw.get_vocab()
        vocab_size = 1 + max(vocabulary.values(), default=-1)
        own_eos = self.raw.get_eos_token_id()
        eos_ids = _eos_ids(folder, own_eos if own_eos >= 0 else None)
        # The patterns of a graph are not looked at.
        is_quick, specials = False, self._specials(vocab_size, eos_ids)
        return TokenizerFacts(vocab_size, eos_ids, specials, is_quick)

    def _specials(self, vocab_size: int, eos_ids: frozenset[int]) -> Mapping[int, str]:
        """Found by decoding each token twice: the library does not list them."""
        ids = [[id_] for id_ in range(vocab_size)]
        all_texts = self.raw.decode(ids, skip_special_tokens=False)
        without_special = self.raw.decode(ids, skip_special_tokens=True)
        return {
            id_: text
            for id_, (text, rest) in enumerate(zip(all_texts, without_special, strict=True))
            if text != rest or id_ in eos_ids
        }

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def token_name(self, token_id: int) -> str:
        """Here the spelling is the bytes themselves, which may be a part of a character."""
        return self.token_bytes(token_id).decode(errors="replace")

    def token_id(self, name: str) -> int | None:
        return self._vocabulary.get(name.encode())

    @cached_property
    def _vocabulary(self) -> dict[bytes, int]:
        return dict(self.raw.get_vocab())

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return {id_: name for name, id_ in self._vocabulary.items()}

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        encoded = self.raw.encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.input_ids.data.reshape(-1).tolist()  # int64, (1, num_tokens)
        return ids


def _read_fast(path: Path) -> RawTokenizer:
    try:
        raw = RawTokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise UnusableFolder(f"{path} cannot be read: {error}.") from error
    # Files keep the settings of the last training run; prompts must not be cut.
    raw.no_truncation()
    raw.no_padding()
    return raw


def _read_vino(path: Path) -> Any:
    # Slow to import, and most models do not need it.
    from openvino_genai import Tokenizer as RawVinoTokenizer

    try:
        return RawVinoTokenizer(str(path))
    except RuntimeError as error:
        raise UnusableFolder(f"OpenVINO's tokenizer in {path} cannot be read: {error}.") from error


def _eos_ids(folder: ModelFolder, own: int | None) -> frozenset[int]:
    ids = set(folder.defaults.eos_token_ids)
    return frozenset(ids if own is None else ids | {own})


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
