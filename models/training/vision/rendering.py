"""Turns a talk into the text that the model reads, with the chat template that ships with it, and
the text into tokens: bytes, and every digit a token of its own."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from training import tokenization
from training.rendering import compiled
from training.tokenization import byte_tokenizer
from training.vision.talks import Message, talk

TEMPLATE_PATH = Path(__file__).with_name("template.jinja")
ANSWER_START = "<|im_start|>assistant\n"
END_OF_TURN = "<|im_end|>"


def render(messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """The text of `messages`, as a server renders it."""
    return compiled(TEMPLATE_PATH).render(
        messages=list(messages), tools=None, add_generation_prompt=add_generation_prompt
    )


# -- The byte-level tokenizer. Every digit is a token of its own.

SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
VOCABULARY_SIZE = 640
NUM_TALKS = 6000


def train_tokenizer(seed: int = 1) -> Tokenizer:
    """A new tokenizer, trained on talks."""
    rng = Random(seed)
    texts = (
        render(talk(rng, index % 3, 1.0, is_video=index % 10 == 0).messages())
        for index in range(NUM_TALKS)
    )
    return byte_tokenizer(texts, VOCABULARY_SIZE, SPECIAL_TOKENS)


def save_for_transformers(tokenizer: Tokenizer, folder: Path, *, max_tokens: int) -> None:
    """Write the tokenizer and the chat template the way transformers stores them."""
    additional = [token for token in SPECIAL_TOKENS[1:] if token.startswith("<|")]
    tokenization.save_for_transformers(
        tokenizer, folder, max_tokens=max_tokens, template=TEMPLATE_PATH, additional=additional
    )
