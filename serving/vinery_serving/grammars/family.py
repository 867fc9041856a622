"""A family of models: name, marks of its templates, parser of outputs, and grammars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.tasks import PLAIN
from vinery_serving.core.tools import INPUT
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.grammars.grammar.rules import in_json
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import text_tag
from vinery_serving.output.parsers.base import ParserFamily, ReasoningTags, with_reasoning

CallTag = Callable[[Tool, ToolChoice], StructuralTag]  # returns the tag of a tool's call
# Texts of chat templates: a template that holds all texts of one tuple is the family's.
Marks = tuple[tuple[str, ...], ...]

ANY_TEXT: Final[StructuralTag] = {"type": "any_text"}
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class GrammarFamily:
    """Forces the output of one family of models. Each call is one tag, in free text where `trigger`
    begins it. With `begin`, which starts with `trigger`, all calls of an answer share a `begin` and
    an `end`. Without `call` the family has no form for calls."""

    call: CallTag | None = None
    # A function: `begin` and a tool's name begin calls. For a `begin` that is common in text.
    trigger: str | Callable[[Tool], str] = ""
    separator: str = "\n"
    begin: str | None = None
    end: str = ""
    answer_begin: str = ""  # the syntax before an answer
    # None: a grammar allows no reasoning before the demanded text.
    reasoning: ReasoningTags | None = None
    # The models begin with reasoning, whatever the prompt contains. A grammar allows the reasoning:
    # these models never learned to answer without it.
    may_reason_first: bool = False

    @property
    def supports_calls(self) -> bool:
        return self.call is not None

    @property
    def starts_in_reasoning(self) -> bool:
        """Whether the output begins with reasoning, whatever the end of the prompt."""
        return self.may_reason_first or bool(self.reasoning and self.reasoning.starts_open)

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        """Return the format of an answer with calls of these tools (never empty). REQUIRED and
        NAMED: at least one call and nothing else. AUTO: free text in which calls, once begun, must
        fit. One call at most if NAMED, as OpenAI's clients expect, or unless `parallel`. Raises
        `UnsupportedParameter` for a strict tool whose schema cannot be enforced. Only for families
        with `call`."""
        assert self.call is not None
        tags = [self.call(tool, choice) for tool in tools]
        is_one = not parallel or choice.mode is ToolMode.NAMED
        calls = _separated(tags, self.separator, at_least_one=True, is_one=is_one)
        if self.begin is not None:
            calls = tag(self.begin, calls, self.end)
        if choice.mode is not ToolMode.AUTO:
            return calls
        if isinstance(self.trigger, str):
            in_text = tags if self.begin is None else [calls]
            triggers = [self.trigger]
        else:
            in_text = [self._list_from(call, tags, is_one=is_one) for call in tags]
            triggers = list(map(self.trigger, tools))
        return {
            "type": "triggered_tags",
            "triggers": triggers,
            "tags": in_text,
            "at_least_one": False,
            "stop_after_first": is_one,
        }

    def _list_from(
        self, call: StructuralTag, calls: Sequence[StructuralTag], *, is_one: bool
    ) -> StructuralTag:
        others = [{**each, "begin": f"{self.separator}{each['begin']}"} for each in calls]
        more = [] if is_one else [_separated(others, "", at_least_one=False, is_one=False)]
        content = sequence(call["content"], text(call["end"]), *more)
        return tag(f"{self.begin}{call['begin']}", content, self.end)

    def answer(self, answer: StructuralTag) -> StructuralTag:
        return sequence(text(self.answer_begin), answer) if self.answer_begin else answer

    def after_reasoning(self, output: StructuralTag) -> StructuralTag:
        """Return `output` (calls, or an answer with its syntax) after reasoning, for an output
        that begins inside reasoning."""
        tags = self.reasoning
        if tags is None:
            return output
        if not self.may_reason_first:
            gap = [text(tags.gap)] if tags.gap else []  # XGrammar refuses an empty string
            return sequence(tag("", ANY_TEXT, tags.closing), *gap, output)
        if output["type"] == "triggered_tags":
            return output  # free text may hold reasoning anyway
        reasoned = sequence(tag(tags.open.text, ANY_TEXT, tags.closing), output)
        return {"type": "or", "elements": [reasoned, output]}


@dataclass(frozen=True, slots=True)
class Family:
    """A family of model output. `name` is the name in configuration."""

    name: str
    marks: Marks
    parser: ParserFamily
    grammar: GrammarFamily

    def with_reasoning(self, name: str, tags: ReasoningTags) -> Family:
        name = name if self.name == PLAIN else f"{name}+{self.name}"
        grammar = replace(self.grammar, reasoning=tags, may_reason_first=False)
        return Family(name, (), with_reasoning(self.parser, tags), grammar)


def tag(begin: str, content: StructuralTag, end: str) -> StructuralTag:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def text(value: str) -> StructuralTag:
    return {"type": "const_string", "value": value}


def sequence(*elements: StructuralTag) -> StructuralTag:
    return {"type": "sequence", "elements": list(elements)}


def _separated(
    tags: Sequence[StructuralTag], separator: str, *, at_least_one: bool, is_one: bool
) -> StructuralTag:
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": separator,
        "at_least_one": at_least_one,
        "stop_after_first": is_one,
    }


def is_enforced(tool: Tool, choice: ToolChoice) -> bool:
    return choice.mode is not ToolMode.AUTO or bool(tool.strict)


def arguments_tag(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """Return a tag of the tool's arguments as JSON. A custom tool has one argument, its input. A
    call that need not fit the tool's schema may have any object. Raises `InvalidGrammar` or
    `UnsupportedParameter`, as `json_tag` does."""
    if tool.input_grammar is not None:
        return text_tag(tool.input_grammar, in_json, before=f'{{"{INPUT}": "', after='"}')
    schema: Any = {"type": "object"}
    if is_enforced(tool, choice):
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    where = f"tools.{tool.name}.parameters"
    return json_tag(schema, param=where, is_strict=bool(tool.strict))
