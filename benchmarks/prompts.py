"""The prompts of a run: conversations for the server, and their token ids for the loop.

Each prompt has a number and differs from all others near its beginning, so that the prefix cache
of an earlier run does not replace the prefill.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from jinja2 import Environment
from tokenizers import Tokenizer

from tests.random_models.folder import plain_words

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Prompt:
    """A conversation in both forms."""

    messages: Messages
    ids: list[int]


class PromptSource:
    """Prompts without end, none twice."""

    def __init__(self, folder: Path, write: Callable[[int], Messages]) -> None:
        self._encode = ChatEncoder(folder)
        self._write = write
        self._numbers = count(1)

    def take(self, num_prompts: int) -> list[Prompt]:
        return list(islice(self._prompts(), num_prompts))

    def _prompts(self) -> Iterator[Prompt]:
        for number in self._numbers:
            messages = self._write(number)
            yield Prompt(messages, self._encode(messages))


class ChatEncoder:
    """Renders and encodes a conversation as the server does, from the files of the folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(_template_text(folder, config))
        self._names = {name: config.get(name) for name in ("bos_token", "eos_token")}

    def __call__(self, messages: Messages) -> list[int]:
        text = self._template.render(messages=messages, add_generation_prompt=True, **self._names)
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def counting(number: int) -> Messages:
    """A question with a long answer of the reference model: 171 tokens, greedily."""
    return [
        {"role": "system", "content": f"Session {number}."},
        {"role": "user", "content": "Count to 60."},
    ]


def rambling(num_words: int) -> Callable[[int], Messages]:
    """Words without sense, for models without sense. A word is one token."""
    words = [word for word, _ in plain_words()]

    def write(number: int) -> Messages:
        chosen = random.Random(number).choices(words, k=num_words)
        return [{"role": "user", "content": " ".join([str(number), *chosen])}]

    return write


def _template_text(folder: Path, config: dict[str, str]) -> str:
    file = folder / "chat_template.jinja"
    return file.read_text(encoding="utf-8") if file.exists() else config["chat_template"]
