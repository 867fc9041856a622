"""Gemma 4: thoughts and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from serving.constraints.literal_grammar import Spelling, arguments_grammar
from serving.constraints.shapes import arguments_shape, calls_shape
from serving.core.request import Tool, ToolChoice
from serving.output.calls import CallsParser
from serving.output.formats.base import Format, Shape, ThoughtMarks
from serving.output.formats.plain import PlainParser
from serving.output.formats.think import ThinkParser, ThoughtForm
from serving.output.gemma_call import GemmaCall
from serving.output.lexer import Tag
from serving.output.parse_events import Parser

_OPEN: Final = Tag("<|tool_call>")
_CLOSE: Final = Tag("<tool_call|>")
_QUOTE: Final = '<|"|>'
_THOUGHT: Final = ThoughtForm("gemma4", Tag("<|channel>thought"), Tag("<channel|>"), gap="")


def _value(value: Any) -> str:
    """A JSON value in Gemma's notation."""
    match value:
        case list():
            return f"[{','.join(map(_value, value))}]"
        case dict():
            return f"{{{','.join(f'{_value(key)}:{_value(each)}' for key, each in value.items())}}}"
        case str():
            return f"{_QUOTE}{value}{_QUOTE}"
        case _:
            return json.dumps(value)


_SPELLING: Final = Spelling(
    assign=":",
    comma=",",
    key=re.compile(r"\w+"),
    key_rule="[A-Za-z_] [A-Za-z0-9_]{0,63}",
    value=_value,
    has_bare_keys=True,
    quote=_QUOTE,
    has_escapes=False,
    rules={
        "char": "char ::= [^<]",
        # Anything but the mark that ends it.
        "string": r'''string ::= "<|\"|>" ([^<] | "<"+ [^<|])* "<|\"|>"''',
    },
)


class Gemma4(Format):
    """The family of models that were trained on this form."""

    name = "gemma4"
    makes_calls = True
    special_texts = frozenset({_OPEN.text, _CLOSE.text, _QUOTE, "<|channel>", "<channel|>"})

    @property
    def thought_marks(self) -> ThoughtMarks:
        close = _THOUGHT.close.text
        return ThoughtMarks(_THOUGHT.open.text, close, close)

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        answer: Parser = PlainParser()
        if tools:
            answer = CallsParser(_OPEN, lambda tag: GemmaCall(tag, _CLOSE))
        return ThinkParser(_THOUGHT, answer, opens_reasoning=opens_reasoning)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        tags = [_call_tag(tool, choice) for tool in tools]
        return calls_shape(tags, choice, trigger=_OPEN.text, parallel=parallel, separator="")

    def after_thought(self, shape: Shape) -> Shape:
        end = _THOUGHT.close.text
        thought = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": end}
        return {"type": "sequence", "elements": [thought, shape]}


def _call_tag(tool: Tool, choice: ToolChoice) -> Shape:
    """A call. Arguments that cannot be forced in Gemma's notation are JSON, which its parser
    reads as well."""
    arguments = arguments_grammar(tool, choice, _SPELLING)
    begin, end = ("{", "}") if arguments else ("", "")
    return {
        "type": "tag",
        "begin": f"{_OPEN.text}call:{tool.name}{begin}",
        "content": arguments or arguments_shape(tool, choice),
        "end": f"{end}{_CLOSE.text}",
    }
