"""Turns a talk into the text that the model reads, with the chat template that ships with it."""

from collections.abc import Sequence
from pathlib import Path

from training.rendering import compiled
from training.vision.talks import Message

TEMPLATE_PATH = Path(__file__).with_name("template.jinja")
ANSWER_START = "<|im_start|>assistant\n"
END_OF_TURN = "<|im_end|>"


def render(messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """The text of `messages`, as a server renders it."""
    return compiled(TEMPLATE_PATH).render(
        messages=list(messages), tools=None, add_generation_prompt=add_generation_prompt
    )
