"""Gemma 4: reasoning and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes.
"""

from __future__ import annotations

from serving.output.gemma_call import GemmaCall
from serving.output.lexer import Tag
from serving.output.parsers.base import CallsFamily, ReasoningTags
from serving.output.parsers.reasoning import WithReasoning

OPEN = Tag("<|tool_call>")
CLOSE = Tag("<tool_call|>")
QUOTE = '<|"|>'
REASONING = ReasoningTags(Tag("<|channel>thought"), Tag("<channel|>"))

GEMMA4 = WithReasoning(
    CallsFamily(
        OPEN,
        lambda opening, _: GemmaCall(opening, CLOSE),
        special_texts=frozenset((OPEN.text, CLOSE.text, QUOTE, "<|channel>", "<channel|>")),
    ),
    REASONING,
)
