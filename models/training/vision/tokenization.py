"""The byte-level tokenizer of tiny-vision. Every digit is a token of its own."""

from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from training import tokenization
from training.tokenization import byte_tokenizer
from training.vision.rendering import TEMPLATE_PATH, render
from training.vision.talks import talk

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
