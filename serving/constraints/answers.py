"""Grammars for the shape of the answer that a request asks for.

The shape holds for the answer alone: a thought that comes before it runs free. Where tools
may be called as well (`tool_choice` auto), the model has the choice, as with OpenAI: it
either calls tools, and then nothing else, or answers in the shape. With `tool_choice` none
there is only the answer; calls that are demanded leave no room for one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never

from serving.constraints.client_tags import tag_shape
from serving.constraints.family import GrammarFamily, Shape
from serving.constraints.lowering import lowered
from serving.constraints.schema.ebnf import choice_grammar
from serving.constraints.shapes import json_tag, regex_shape
from serving.core.errors import InvalidGrammar
from serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode


def answer_grammar(
    family: GrammarFamily,
    grammar: Grammar,
    *,
    opens_reasoning: bool,
    tools: Sequence[Tool] = (),
    parallel: bool = True,
) -> Grammar:
    """`grammar` for the answer alone, where a thought or marks of the family stand around it;
    or calls of `tools` instead.

    Raises `InvalidGrammar` or `UnsupportedParameter` for a source that cannot be held to,
    with the path of what is wrong in it.
    """
    shape = family.answer(_shape(grammar))
    if tools and family.supports_calls:
        calls = family.calls(tools, ToolChoice(ToolMode.REQUIRED), parallel=parallel)
        shape = {"type": "or", "elements": [lowered(calls) or calls, lowered(shape) or shape]}
    if opens_reasoning or family.starts_in_reasoning:
        shape = family.after_reasoning(shape)
    return as_grammar(shape, grammar.param)


def as_grammar(shape: Shape, param: str | None) -> Grammar:
    """What the engine is told. A shape that is only a grammar needs no tag around it."""
    if shape["type"] == "grammar":
        return Grammar(GrammarKind.EBNF, shape["grammar"], param)
    source = json.dumps({"type": "structural_tag", "format": shape}, ensure_ascii=False)
    return Grammar(GrammarKind.STRUCTURAL_TAG, source, param)


def _shape(grammar: Grammar) -> Shape:
    param = grammar.param or "response_format"
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return json_tag(
                _json(grammar),
                param=param,
                is_strict=grammar.is_strict,
                is_compact=grammar.is_compact,
            )
        case GrammarKind.REGEX:
            return regex_shape(grammar.source, param=param)
        case GrammarKind.EBNF:
            return {"type": "grammar", "grammar": grammar.source}
        case GrammarKind.CHOICE:
            return {"type": "grammar", "grammar": choice_grammar(_json(grammar))}
        case GrammarKind.STRUCTURAL_TAG:
            return tag_shape(_json(grammar), param=param, is_strict=grammar.is_strict)
        case _:
            assert_never(grammar.kind)


def _json(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.source)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"This is not JSON: {error}.", param=grammar.param) from None
