"""A byte-level BPE tokenizer of any size, trained in the process from a few sentences.

Entries that training does not fill are words that no merge reaches: they are never read, but
a model can answer with them, and then they decode to text. Special tokens come last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from benchmarks.shapes.corpus import SENTENCES

MOST_TRAINED_ENTRIES = 700
SPACE = "Ġ"  # how byte-level BPE writes a space


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a tokenizer, special tokens included.

    `prefix` is put before a text that is encoded with special tokens. `has_single_digits`
    cuts numbers into digits, as Qwen does.
    """

    size: int
    special_tokens: tuple[str, ...]
    end: str
    pad: str
    prefix: str | None = None
    has_single_digits: bool = False

    def __post_init__(self) -> None:
        named = {self.end, self.pad, *([self.prefix] if self.prefix else [])}
        if not named <= set(self.special_tokens):
            raise ValueError("end, pad and prefix must be among the special tokens")
        if self.size < 256 + len(self.special_tokens):
            raise ValueError("a byte-level vocabulary needs 256 entries beside the special tokens")

    @property
    def num_ordinary(self) -> int:
        return self.size - len(self.special_tokens)


def train(vocabulary: Vocabulary) -> Tokenizer:
    """A tokenizer with exactly `vocabulary.size` entries; the same one each time."""
    tokenizer = _padded(_trained(vocabulary), vocabulary.num_ordinary)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in vocabulary.special_tokens]
    )
    if vocabulary.prefix is not None:
        prefix_id = token_id(tokenizer, vocabulary.prefix)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{vocabulary.prefix} $A",
            pair=f"{vocabulary.prefix} $A {vocabulary.prefix} $B",
            special_tokens=[(vocabulary.prefix, prefix_id)],
        )
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Raises KeyError when the tokenizer has no such entry."""
    id_ = tokenizer.token_to_id(token)
    if id_ is None:
        raise KeyError(token)
    return id_


def unprintable_ids(tokenizer: Tokenizer) -> list[int]:
    """Special tokens and single bytes: what an answer made of whole words does not contain."""
    special = set(tokenizer.get_added_tokens_decoder())
    entries = tokenizer.get_vocab(with_added_tokens=True).items()
    return sorted(id_ for token, id_ in entries if id_ in special or len(token) == 1)


def _trained(vocabulary: Vocabulary) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=vocabulary.has_single_digits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=min(vocabulary.num_ordinary, MOST_TRAINED_ENTRIES),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _padded(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """The same tokenizer with made-up words up to `size` entries."""
    content = json.loads(tokenizer.to_str())
    entries: dict[str, int] = content["model"]["vocab"]
    missing = size - len(entries)
    for word in islice((w for w in _made_up_words() if w not in entries), missing):
        entries[word] = len(entries)
    return Tokenizer.from_str(json.dumps(content))


def _made_up_words() -> Iterator[str]:
    return (f"{SPACE}w{number}" for number in count())
