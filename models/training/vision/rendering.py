"""Turns a talk into the text that the model reads, with the chat template that ships with it."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2

from training.vision.talks import Message

TEMPLATE_PATH = Path(__file__).with_name("template.jinja")
ANSWER_START = "<|im_start|>assistant\n"
END_OF_TURN = "<|im_end|>"


@cache
def chat_template() -> jinja2.Template:
    """The compiled chat template."""
    # The output is read by a tokenizer, never by a browser.
    environment = jinja2.Environment(autoescape=False)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))


def render(messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """The text of `messages`, as a server renders it."""
    return chat_template().render(
        messages=list(messages), tools=None, add_generation_prompt=add_generation_prompt
    )
