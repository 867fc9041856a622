"""The grammars of a model family: they force calls, or an answer in a given grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from serving.constraints.grammar.ebnf import StructuralTag
from serving.core.request import Tool, ToolChoice


class GrammarFamily(Protocol):
    """Forces the output of one family of models. Stateless."""

    @property
    def supports_calls(self) -> bool:
        """Whether the family has a form for tool calls."""

    @property
    def starts_in_reasoning(self) -> bool:
        """Whether its output begins with reasoning whatever the prompt ends with."""

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        """Return the format of an answer with calls of these tools (never empty).

        REQUIRED and NAMED: at least one call and nothing else. AUTO: free text in which calls,
        once begun, must fit. One call at most unless `parallel`.
        Raises `UnsupportedParameter` for a strict tool whose schema cannot be enforced. Asked
        for only where the family supports calls.
        """

    def answer(self, answer: StructuralTag) -> StructuralTag:
        """Return `answer` with the syntax that the family writes around it."""

    def after_reasoning(self, output: StructuralTag) -> StructuralTag:
        """Return `output` (calls, or an answer with its syntax) after reasoning, for an output
        that begins inside reasoning."""
