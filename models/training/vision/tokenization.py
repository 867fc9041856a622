"""The byte-level tokenizer of tiny-vision. Every digit is a token of its own."""

from pathlib import Path
from random import Random

from tokenizers import Tokenizer, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.tokenization import new_tokenizer
from training.vision.rendering import END_OF_TURN, TEMPLATE_PATH, render
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
    tokenizer = new_tokenizer()
    rng = Random(seed)
    texts = (
        render(talk(rng, index % 3, 1.0, is_video=index % 10 == 0).messages())
        for index in range(NUM_TALKS)
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer stored in `folder`."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def save_for_transformers(tokenizer: Tokenizer, folder: Path, *, max_tokens: int) -> None:
    """Write the tokenizer and the chat template the way transformers stores them."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=SPECIAL_TOKENS[0],
        additional_special_tokens=[t for t in SPECIAL_TOKENS[1:] if t.startswith("<|")],
        clean_up_tokenization_spaces=False,
        model_max_length=max_tokens,
    )
    wrapped.chat_template = TEMPLATE_PATH.read_text(encoding="utf-8")
    wrapped.save_pretrained(folder)
