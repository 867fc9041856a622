"""The parts of XGrammar structural tags that families share.

A tag is `{"begin", "content", "end"}`; the engine holds the model to one of them, text
and JSON schema alike, and lets it end only where the shape ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from serving.constraints.family import Shape
from serving.constraints.json_grammar import SchemaError, Unenforceable, grammar_of_source
from serving.constraints.schema.pattern import BadPattern, IrregularPattern, pattern_grammar
from serving.constraints.schema.regular import in_json
from serving.constraints.texts import text_tag
from serving.core.errors import InvalidGrammar, UnsupportedParameter
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.core.tools import INPUT

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_OBJECT = {"type": "object"}


def arguments_tag(tool: Tool, choice: ToolChoice) -> Shape:
    """The tool's own schema, except for a free call of a tool that is not strict; or the
    grammar of its input."""
    if tool.input_grammar is not None:
        return text_tag(tool.input_grammar, in_json, before=f'{{"{INPUT}": "', after='"}')
    is_held = choice.mode is not ToolMode.AUTO or tool.strict
    schema: Any = _ANY_OBJECT
    if is_held:
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    where = f"tools.{tool.name}.parameters"
    return json_tag(schema, param=where, is_strict=bool(tool.strict))


def json_tag(
    schema: Any, *, param: str = "tools", is_strict: bool = False, is_compact: bool = False
) -> Shape:
    """JSON that fits a schema, which the field `param` holds.

    Raises `InvalidGrammar` for what is wrong in it, and, if `is_strict`, `UnsupportedParameter`
    for what no grammar can hold a model to; both with the path.
    """
    source = json.dumps(schema, ensure_ascii=False)
    try:
        text = grammar_of_source(source, is_strict=is_strict, is_compact=is_compact)
    except Unenforceable as error:
        path = param + error.path
        raise UnsupportedParameter(
            f"`{path}` cannot be enforced: {error.reason}. Leave it out, or do without `strict`.",
            param=path,
        ) from None
    except SchemaError as error:
        path = param + error.path
        raise InvalidGrammar(f"`{path}` {error.reason}.", param=path) from None
    return {"type": "grammar", "grammar": text}


def regex_shape(pattern: str, *, param: str) -> Shape:
    """Text that a regular expression matches from end to end. Raises `InvalidGrammar`."""
    try:
        return {"type": "grammar", "grammar": pattern_grammar(pattern)}
    except (BadPattern, IrregularPattern) as error:
        raise InvalidGrammar(
            f"`{param}` cannot be compiled as a regular expression: {error}.", param=param
        ) from None


def json_call_tag(
    tool: Tool, choice: ToolChoice, *, key: str = "arguments", before: str = "", after: str = ""
) -> Shape:
    """A call as a JSON object whose arguments are under `key`, between two texts."""
    name = json.dumps(tool.name, ensure_ascii=False)
    return {
        "type": "tag",
        "begin": f'{before}{{"name": {name}, "{key}": ',
        "content": arguments_tag(tool, choice),
        "end": f"}}{after}",
    }


def json_array_shape(
    tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, trigger: str, begin: str
) -> Shape:
    """All calls of an answer as the objects of one JSON array. `begin` ends with its bracket
    and starts with `trigger`, which begins calls in free text."""
    tags = [json_call_tag(tool, choice) for tool in tools]
    return wrapped_calls_shape(
        tags, choice, trigger=trigger, parallel=parallel, begin=begin, separator=", ", end="]"
    )


def calls_shape(
    tags: Sequence[Shape],
    choice: ToolChoice,
    *,
    trigger: str,
    parallel: bool,
    separator: str = "\n",
) -> Shape:
    """Calls alone, or for AUTO free text in which `trigger` begins a call.

    NAMED is one call, as OpenAI's clients expect of it.
    """
    is_one = _is_one(choice, parallel=parallel)
    if choice.mode is ToolMode.AUTO:
        return _free(tags, trigger, is_one=is_one)
    return _row(tags, separator, is_one=is_one)


def wrapped_calls_shape(
    tags: Sequence[Shape],
    choice: ToolChoice,
    *,
    trigger: str,
    parallel: bool,
    begin: str,
    separator: str,
    end: str,
) -> Shape:
    """The same where all calls of an answer stand between one `begin` and one `end`.
    `begin` starts with `trigger`."""
    is_one = _is_one(choice, parallel=parallel)
    row = _row(tags, separator, is_one=is_one)
    whole = {"type": "tag", "begin": begin, "content": row, "end": end}
    return _free([whole], trigger, is_one=is_one) if choice.mode is ToolMode.AUTO else whole


def _is_one(choice: ToolChoice, *, parallel: bool) -> bool:
    return not parallel or choice.mode is ToolMode.NAMED


def _free(tags: Sequence[Shape], trigger: str, *, is_one: bool) -> Shape:
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": list(tags),
        "at_least_one": False,
        "stop_after_first": is_one,
    }


def _row(tags: Sequence[Shape], separator: str, *, is_one: bool) -> Shape:
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": is_one,
    }
