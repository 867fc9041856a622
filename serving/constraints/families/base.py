"""What grammar families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.constraints.ebnf import StructuralTag
from serving.constraints.family import GrammarFamily
from serving.constraints.tags import calls_tag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers.base import ReasoningTags


@dataclass(frozen=True)
class Answers:
    """A family without calls, whose answers have no syntax around them. The base of others."""

    supports_calls = False
    starts_in_reasoning = False

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        raise NotImplementedError

    def answer(self, shape: StructuralTag) -> StructuralTag:
        return shape

    def after_reasoning(self, shape: StructuralTag) -> StructuralTag:
        return shape


@dataclass(frozen=True)
class Calls(Answers):
    """A family whose calls are one tag each.

    `call` returns the tag of a tool's call. `trigger` begins a call in free text. `begin` and
    `end` stand around all calls of an answer; `begin` starts with `trigger`.
    """

    call: Callable[[Tool, ToolChoice], StructuralTag]
    trigger: str
    separator: str = "\n"
    begin: str | None = None
    end: str = ""

    supports_calls = True

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        tags = [self.call(tool, choice) for tool in tools]
        return calls_tag(
            tags,
            choice,
            trigger=self.trigger,
            parallel=parallel,
            separator=self.separator,
            begin=self.begin,
            end=self.end,
        )


@dataclass(frozen=True, kw_only=True)
class Messages(Calls):
    """A family whose output is a sequence of messages. Its models begin with reasoning of their
    own accord, whatever the prompt says. A grammar lets them reason too, because they never
    learned to answer without.

    `answer_begin` is the head of an answer.
    """

    answer_begin: str
    tags: ReasoningTags
    starts_in_reasoning: bool = True

    def answer(self, shape: StructuralTag) -> StructuralTag:
        head = {"type": "const_string", "value": self.answer_begin}
        return {"type": "sequence", "elements": [head, shape]}

    def after_reasoning(self, shape: StructuralTag) -> StructuralTag:
        if shape["type"] == "triggered_tags":
            return shape  # free text may hold reasoning anyway
        reasoning = _reasoning(self.tags, begin=self.tags.open.text)
        return {
            "type": "or",
            "elements": [{"type": "sequence", "elements": [reasoning, shape]}, shape],
        }


@dataclass(frozen=True)
class AfterReasoning:
    """Any family, with reasoning before its answers."""

    family: GrammarFamily
    tags: ReasoningTags

    @property
    def supports_calls(self) -> bool:
        return self.family.supports_calls

    @property
    def starts_in_reasoning(self) -> bool:
        return self.tags.starts_open

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        return self.family.calls(tools, choice, parallel=parallel)

    def answer(self, shape: StructuralTag) -> StructuralTag:
        return self.family.answer(shape)

    def after_reasoning(self, shape: StructuralTag) -> StructuralTag:
        # The engine takes no empty string.
        gap = [{"type": "const_string", "value": self.tags.gap}] if self.tags.gap else []
        return {"type": "sequence", "elements": [_reasoning(self.tags), *gap, shape]}


def _reasoning(tags: ReasoningTags, begin: str = "") -> StructuralTag:
    return {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": tags.closing}
