"""Grammars for the answers and the tool calls that a request asks for. A grammar is for the answer
alone: reasoning before the answer is free. A model that begins its reasoning itself goes straight
to the demanded text: with the choice, a model whose reasoning is switched off would reason to avoid
the demand."""

import json
from collections.abc import Sequence
from typing import Any, Final, assert_never

from vinery_serving.core.errors import InvalidGrammar, InvalidRequest, UnsupportedParameter, cited
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode
from vinery_serving.grammars.client_tags import client_tag
from vinery_serving.grammars.family import GrammarFamily
from vinery_serving.grammars.grammar.ebnf import StructuralTag, Text, alt, grammar_tag, text_of
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import lowered, regex_tag

_DEFAULT_PARAM: Final = "response_format"


def answer_grammar(
    family: GrammarFamily,
    grammar: Grammar,
    *,
    opens_reasoning: bool,
    tools: Sequence[Tool] = (),
    parallel: bool = True,
) -> Grammar:
    """Return the grammar of an answer with the family's reasoning and syntax around it, or of calls
    of `tools` instead. Raises `InvalidGrammar` for an invalid source, or `UnsupportedParameter` for
    a source that cannot be enforced, with the path of the cause."""
    tag = family.answer(_answer(grammar))
    if tools and family.supports_calls:
        calls = family.calls(tools, ToolChoice(ToolMode.REQUIRED), parallel=parallel)
        tag = {"type": "or", "elements": [lowered(calls) or calls, lowered(tag) or tag]}
    return _after_reasoning(family, tag, grammar.param, opens_reasoning=opens_reasoning)


def tool_grammar(
    family: GrammarFamily,
    tools: Sequence[Tool],
    choice: ToolChoice,
    *,
    parallel: bool,
    opens_reasoning: bool,
) -> Grammar | None:
    """Return the grammar of the calls that the request demands; None if the model is free. Raises
    `UnsupportedParameter` if calls of the family cannot be forced, `InvalidRequest` for the name of
    a tool that the request does not have."""
    tools = [tool for tool in tools if choice.allows(tool.name)]
    if choice.mode is ToolMode.NAMED and not tools:
        raise InvalidRequest(
            f"There is no tool named {cited(repr(choice.name))} in tools.", param="tool_choice"
        )
    is_forced = choice.mode is not ToolMode.AUTO
    is_narrow = choice.allowed is not None or any(tool.strict for tool in tools) or not parallel
    if not tools or not (is_forced or (family.supports_calls and is_narrow)):
        return None
    if not family.supports_calls:
        raise UnsupportedParameter(
            "This model's output has no known form for tool calls, so a call cannot be forced.",
            param="tool_choice",
        )
    calls = family.calls(tools, choice, parallel=parallel)
    return _after_reasoning(family, calls, "tools", opens_reasoning=opens_reasoning)


def _after_reasoning(
    family: GrammarFamily, tag: StructuralTag, param: str | None, *, opens_reasoning: bool
) -> Grammar:
    if opens_reasoning or family.starts_in_reasoning:
        tag = family.after_reasoning(tag)
    if tag["type"] == "grammar":
        return Grammar(GrammarKind.EBNF, tag["grammar"], param)
    source = json.dumps({"type": "structural_tag", "format": tag}, ensure_ascii=False)
    return Grammar(GrammarKind.STRUCTURAL_TAG, source, param)


def _answer(grammar: Grammar) -> StructuralTag:
    param = grammar.param or _DEFAULT_PARAM
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return json_tag(
                _json(grammar),
                param=param,
                is_strict=grammar.is_strict,
                is_compact=grammar.is_compact,
            )
        case GrammarKind.REGEX:
            return regex_tag(grammar.source, param=param)
        case GrammarKind.EBNF:
            return grammar_tag(grammar.source)
        case GrammarKind.CHOICE:
            choices = alt(Text(choice) for choice in _json(grammar))
            return grammar_tag(text_of({"root": choices}, "root") or "")
        case GrammarKind.STRUCTURAL_TAG:
            return client_tag(_json(grammar), param=param, is_strict=grammar.is_strict)
        case _:
            assert_never(grammar.kind)


def _json(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.source)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"This is not JSON: {error}.", param=grammar.param) from None
