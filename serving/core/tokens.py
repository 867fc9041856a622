"""Questions to a model's tokenizer, and their answers."""

from __future__ import annotations

from dataclasses import dataclass

from serving.core.request import Conversation, Encoding


@dataclass(frozen=True, slots=True)
class Padding:
    """Pad tokens that make a text `length` tokens long."""

    length: int
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Which tokens a prompt has: texts, or what a chat template makes of messages."""

    model: str | None
    prompt: tuple[str, ...] | Conversation
    encoding: Encoding
    padding: Padding | None = None
    wants_token_strings: bool = False


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The tokens of each text, with their names in the vocabulary where they were wanted.

    `max_context` is the model's, in tokens; None: unknown.
    """

    token_ids: tuple[tuple[int, ...], ...]
    names: tuple[tuple[str, ...], ...] | None = None
    max_context: int | None = None
