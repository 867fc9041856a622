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

MOST_TRAINED_ENTRIES = 700
SPACE = "Ġ"  # how byte-level BPE writes a space

# What merges are learned from. ASCII only, so that no merged token ever holds half a character.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog while the sun goes down behind the hills.",
    "A server answers many people at once, and each of them sees the words as they come.",
    "Count the tokens that go in, count the tokens that come out, and keep the two apart.",
    "The first token tells how long a person waits; the gaps between tokens tell how it reads.",
    "What is the capital of the country where the longest river meets the oldest city?",
    "Please write a short story about a lighthouse keeper who finds a letter in the sand.",
    "In the morning the market opens, and by noon every table has bread, salt and fruit.",
    "When the rain had stopped, the children went out to the garden and looked for snails.",
    "Numbers such as one, two, three, ten, twenty and one hundred are words as well.",
    "The model reads the question, thinks about the answer, and then begins to speak.",
    "Every winter the old bridge was closed, and every spring the village opened it again.",
    "A good tool does one thing, says what it did, and leaves the table clean behind it.",
)

WORDS = tuple(sorted({word.strip(".,;?").lower() for line in SENTENCES for word in line.split()}))


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
