"""Families whose arguments stand between tags (see the parser `tagged`), and what forces their
calls.

Strings are raw text there, so their rules are written anew: any text up to the closing tag,
one of some texts, or a text of a bounded length. All other values are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serving.constraints.ebnf import StructuralTag, grammar_tag, quoted
from serving.constraints.families.base import Calls
from serving.constraints.parameters import (
    DEFINITIONS,
    FREE,
    Parameter,
    Parameters,
    is_enforced,
    parameters_of,
)
from serving.constraints.rules import plain
from serving.constraints.tags import json_tag
from serving.constraints.texts import text_tag
from serving.core.errors import UnsupportedParameter
from serving.core.request import TextGrammar, Tool, ToolChoice
from serving.core.tools import INPUT
from serving.output.parsers.argument_types import Kind, kind_of, options_of, types_of
from serving.output.parsers.tagged import CDATA, TagSyntax

_NOTHING: Final[StructuralTag] = {"type": "grammar", "grammar": 'root ::= ""'}
_ANY_TEXT: Final[StructuralTag] = {"type": "any_text"}
# Repetitions are unrolled by the compiler: a longer bound is not worth its cost.
_MAX_LENGTH: Final = 256


def tagged_calls(syntax: TagSyntax) -> Calls:
    """A family that differs from others only in its tags."""
    return Calls(lambda tool, choice: call_tag(syntax, tool, choice), trigger=syntax.opening.text)


def call_tag(syntax: TagSyntax, tool: Tool, choice: ToolChoice) -> StructuralTag:
    """A call as a tag, in its wrapper where the family has one.

    Raises `UnsupportedParameter` for a strict tool with a schema that says more than a list of
    parameters; calls of other tools are then free in their arguments.
    """
    if tool.input_grammar is not None:
        content = _input(syntax, tool.input_grammar)
    elif (parameters := _parameters(tool, choice)).are_free:
        content = _ANY_TEXT
    else:
        content = _row([_argument(syntax, each) for each in parameters.listed])
    return {
        "type": "tag",
        "begin": (
            f"{syntax.wrapper}{syntax.after_wrapper}"
            f"{syntax.call_begin}{tool.name}{syntax.name_end}{syntax.after_name}"
        ),
        "content": content,
        "end": f"{syntax.call_end}{syntax.after_wrapper}{syntax.wrapper_end}",
    }


def _parameters(tool: Tool, choice: ToolChoice) -> Parameters:
    if not is_enforced(tool, choice):
        return FREE
    parameters = parameters_of(tool)
    if parameters is not None:
        return parameters
    if tool.strict:
        raise UnsupportedParameter(
            f"This model writes arguments one by one, so the schema of the strict tool "
            f"{tool.name!r} can only be an object with `properties`, `required`, "
            f"`additionalProperties` and `$defs`.",
            param="tools",
        )
    return FREE


def _input(syntax: TagSyntax, grammar: TextGrammar) -> StructuralTag:
    """The only argument of a custom tool."""
    excluded = (syntax.value_end, CDATA) if syntax.has_cdata else (syntax.value_end,)
    return _argument_tag(syntax, INPUT, text_tag(grammar, plain, excluded=excluded))


def _argument(syntax: TagSyntax, parameter: Parameter) -> StructuralTag:
    tag = _argument_tag(syntax, parameter.name, _value(parameter.schema))
    return tag if parameter.is_required else {"type": "or", "elements": [tag, _NOTHING]}


def _argument_tag(syntax: TagSyntax, name: str, value: StructuralTag) -> StructuralTag:
    line = "\n" if syntax.has_lines else ""
    key = f"{syntax.key_begin}{name}{syntax.key_end}{syntax.after_key}"
    return {
        "type": "tag",
        "begin": f"{key}{syntax.value_begin}{line}",
        "content": value,
        "end": f"{line}{syntax.value_end}{syntax.after_value}",
    }


def _value(schema: Any) -> StructuralTag:
    """JSON, or raw text, or both where the schema leaves a choice. Any text will do for any
    schema that says no more than that: it can only be a string then."""
    document = schema if isinstance(schema, Mapping) else {}
    if kind_of(types_of(schema, document)) is Kind.JSON:
        return json_tag(schema)
    shapes = [_option(each, document) for each in options_of(schema, document)]
    return _ANY_TEXT if _ANY_TEXT in shapes else _one(shapes)


def _option(schema: Any, document: Mapping[str, Any]) -> StructuralTag:
    kind = kind_of(types_of(schema, document))
    if kind is Kind.JSON:
        definitions = {word: document[word] for word in DEFINITIONS if word in document}
        return json_tag({**definitions, **schema})
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return _texts([each if isinstance(each, str) else json.dumps(each) for each in values])
    return _text(schema) if kind is Kind.TEXT else _ANY_TEXT


def _text(schema: Mapping[str, Any]) -> StructuralTag:
    if isinstance(schema.get("pattern"), str):
        return {"type": "regex", "pattern": schema["pattern"]}
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if most is None and least == 0:
        return _ANY_TEXT
    if max(least, most or 0) > _MAX_LENGTH:
        return _ANY_TEXT
    upper = "" if most is None else most
    return {"type": "grammar", "grammar": f"root ::= [^<]{{{least},{upper}}}"}


def _texts(texts: Sequence[str]) -> StructuralTag:
    return grammar_tag(f"root ::= {' | '.join(map(quoted, texts))}")


def _one(shapes: Sequence[StructuralTag]) -> StructuralTag:
    return shapes[0] if len(shapes) == 1 else {"type": "or", "elements": list(shapes)}


def _row(shapes: Sequence[StructuralTag]) -> StructuralTag:
    if len(shapes) < 2:
        return shapes[0] if shapes else _NOTHING
    return {"type": "sequence", "elements": list(shapes)}
