"""The byte-level tokenizer of the reference models: loading it, or training a new one.

Digits are single tokens, so that counting and copying numbers are the same skill. Both reference
models share one tokenizer, without which one could not draft for the other.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.lessons import lesson
from training.rendering import END_OF_TURN, TEMPLATE_PATH

SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer stored in `folder`."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def byte_tokenizer(texts: Iterable[str], vocabulary_size: int, special: Sequence[str]) -> Tokenizer:
    """A new tokenizer of bytes and single digits, trained on these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_tokenizer(*, vocabulary_size: int, num_lessons: int, seed: int) -> Tokenizer:
    """A new tokenizer of `vocabulary_size` tokens, trained on `num_lessons` lessons."""
    rng = Random(seed)
    texts = ("".join(part.text for part in lesson(rng)) for _ in range(num_lessons))
    return byte_tokenizer(texts, vocabulary_size, SPECIAL_TOKENS)


def save_for_transformers(
    tokenizer: Tokenizer,
    folder: Path,
    *,
    max_tokens: int,
    template: Path = TEMPLATE_PATH,
    additional: Sequence[str] = ("<|im_start|>",),
) -> None:
    """Write the tokenizer and the chat template the way transformers stores them."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=SPECIAL_TOKENS[0],
        additional_special_tokens=list(additional),
        clean_up_tokenization_spaces=False,
        model_max_length=max_tokens,
    )
    wrapped.chat_template = template.read_text(encoding="utf-8")
    wrapped.save_pretrained(folder)
