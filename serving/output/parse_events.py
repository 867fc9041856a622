"""What parsers make of a model's text, before calls get ids and choices get numbers.

A parser is fed text as it comes and gives back pieces; fed everything at once it gives
the same pieces, only fewer and longer. So streamed and unary answers cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call began. Its arguments follow, or the input of a custom tool, then
    `CallEnded`, unless the text is cut."""

    name: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class CallArgs:
    """More of the JSON text of the open call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class CallInput:
    """More of the text that the open call gives to a custom tool."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The open call is complete."""


Piece = Text | Reasoning | CallStarted | CallArgs | CallInput | CallEnded


class Parser(Protocol):
    """Reads the text of one choice."""

    @property
    def is_reasoning(self) -> bool:
        """Whether the text so far ends inside the model's thinking."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that this text makes clear; what may be syntax is held back."""

    def finish(self) -> list[Piece]:
        """What was held back. An open call stays open: nothing is invented."""
