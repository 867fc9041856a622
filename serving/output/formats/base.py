"""What a family of model output is: how to read it, and how to force a tool call in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from serving.core.request import Tool, ToolChoice
from serving.output.parse_events import Parser

# A format of XGrammar's structural tags, as JSON. Shapes nest.
Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """What surrounds a thought in a family's output."""

    open: str
    close: str
    # What to write in order to end a thought: `close`, and what must follow it.
    closing: str
    # Whether outputs begin inside a thought that nothing has opened.
    starts_open: bool = False


class Format(Protocol):
    """One family. Stateless: every choice gets its own parser.

    A family that inherits from this class need only say where it differs from the defaults:
    its output begins with the answer, and an answer has no marks around it.
    """

    @property
    def name(self) -> str:
        """What configuration calls it."""

    @property
    def makes_calls(self) -> bool:
        """Whether the family has a form for tool calls."""

    @property
    def special_texts(self) -> frozenset[str]:
        """Tokens that are syntax to this family: the decoder must let them through even
        where the tokenizer calls them special."""

    @property
    def starts_in_thought(self) -> bool:
        """Whether its output begins inside a thought whatever the prompt ends with."""
        return False

    @property
    def thought_marks(self) -> ThoughtMarks | None:
        """None: the family has no thoughts, or leaves them to another (`Think`)."""
        return None

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        """A parser for one choice. Without tools nothing is read as a tool call.

        `opens_reasoning`: the prompt ends inside a thought.
        """

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        """The shape of an answer with calls of these tools (never empty).

        For REQUIRED and NAMED one call at least and nothing else; otherwise free text in
        which calls, once begun, must fit. One call at most unless `parallel`.
        """

    def answer_shape(self, shape: Shape) -> Shape:
        """`shape` with the marks that the family writes around an answer that is no call;
        `shape` itself where there are none."""
        return shape

    def after_thought(self, shape: Shape) -> Shape:
        """`shape` (calls, or an answer with its marks), for an output that begins inside a
        thought."""
        return shape
