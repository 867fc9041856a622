"""The parts of XGrammar structural tags that families share.

A tag is `{"begin", "content", "end"}`; the engine holds the model to one of them, text
and JSON schema alike, and lets it end only where the shape ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.formats.base import Shape
from serving.output.json_grammar import json_grammar

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_OBJECT = {"type": "object"}


def arguments_shape(tool: Tool, choice: ToolChoice) -> Shape:
    """The tool's own schema, except for a free call of a tool that is not strict."""
    is_held = choice.mode is not ToolMode.AUTO or tool.strict
    schema: Any = _ANY_OBJECT
    if is_held:
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    return json_shape(schema)


def json_shape(schema: Any) -> Shape:
    """JSON that fits a schema."""
    text = json_grammar(schema)
    if text is None:
        return {"type": "json_schema", "json_schema": schema}
    return {"type": "grammar", "grammar": text}


def calls_shape(
    tags: Sequence[Shape], choice: ToolChoice, *, trigger: str, parallel: bool
) -> Shape:
    """Calls alone, or for AUTO free text in which `trigger` begins a call.

    NAMED is one call, as OpenAI's clients expect of it.
    """
    is_one = not parallel or choice.mode is ToolMode.NAMED
    if choice.mode is ToolMode.AUTO:
        return {
            "type": "triggered_tags",
            "triggers": [trigger],
            "tags": list(tags),
            "at_least_one": False,
            "stop_after_first": is_one,
        }
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": "\n",
        "at_least_one": True,
        "stop_after_first": is_one,
    }
