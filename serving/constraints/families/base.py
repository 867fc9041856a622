"""What grammar families share: calls in free text or alone, messages, and reasoning before
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.constraints.family import GrammarFamily
from serving.constraints.grammar.ebnf import StructuralTag
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.parsers.base import ReasoningTags

# Returns the tag of a tool's call.
CallTag = Callable[[Tool, ToolChoice], StructuralTag]


def tag(begin: str, content: StructuralTag, end: str) -> StructuralTag:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


class Answers:
    """A family without calls, whose answers have no syntax around them. The base of others."""

    supports_calls = False
    starts_in_reasoning = False

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        raise NotImplementedError

    def answer(self, answer: StructuralTag) -> StructuralTag:
        return answer

    def after_reasoning(self, output: StructuralTag) -> StructuralTag:
        return output


@dataclass(frozen=True)
class Calls(Answers):
    """A family whose calls are one tag each, in free text where `trigger` begins them.

    With `begin`, which starts with `trigger`, all calls of an answer are between one `begin` and
    one `end`.
    """

    call: CallTag
    trigger: str
    separator: str = "\n"
    begin: str | None = None
    end: str = ""

    supports_calls = True

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        """NAMED is exactly one call, as OpenAI's clients expect."""
        tags = [self.call(tool, choice) for tool in tools]
        is_one = not parallel or choice.mode is ToolMode.NAMED
        calls: StructuralTag = {
            "type": "tags_with_separator",
            "tags": tags,
            "separator": self.separator,
            "at_least_one": True,
            "stop_after_first": is_one,
        }
        if self.begin is not None:
            calls = tag(self.begin, calls, self.end)
        if choice.mode is not ToolMode.AUTO:
            return calls
        in_text = tags if self.begin is None else [calls]
        return calls_in_text([self.trigger], in_text, is_one=is_one)


def calls_in_text(
    triggers: Sequence[str], tags: Sequence[StructuralTag], *, is_one: bool
) -> StructuralTag:
    """Return free text in which the triggers begin calls."""
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "at_least_one": False,
        "stop_after_first": is_one,
    }


@dataclass(frozen=True, kw_only=True)
class Messages(Calls):
    """A family whose output is a sequence of messages. Its models begin with reasoning of their
    own accord, whatever the prompt contains. A grammar lets them reason too, because they never
    learned to answer without.

    `answer_begin` is the head of an answer.
    """

    answer_begin: str
    tags: ReasoningTags
    starts_in_reasoning: bool = True

    def answer(self, answer: StructuralTag) -> StructuralTag:
        head = {"type": "const_string", "value": self.answer_begin}
        return {"type": "sequence", "elements": [head, answer]}

    def after_reasoning(self, output: StructuralTag) -> StructuralTag:
        if output["type"] == "triggered_tags":
            return output  # free text may hold reasoning anyway
        reasoning = tag(self.tags.open.text, {"type": "any_text"}, self.tags.closing)
        reasoned = {"type": "sequence", "elements": [reasoning, output]}
        return {"type": "or", "elements": [reasoned, output]}


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

    def answer(self, answer: StructuralTag) -> StructuralTag:
        return self.family.answer(answer)

    def after_reasoning(self, output: StructuralTag) -> StructuralTag:
        reasoning = tag("", {"type": "any_text"}, self.tags.closing)
        # XGrammar refuses an empty string.
        gap = [{"type": "const_string", "value": self.tags.gap}] if self.tags.gap else []
        return {"type": "sequence", "elements": [reasoning, *gap, output]}
