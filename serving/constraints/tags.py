"""The parts of XGrammar's structural tags that the grammars of families share.

A tag is `{"begin", "content", "end"}`. XGrammar accepts one of several tags, with its text and
its grammar, and lets the model end only where the format ends.
"""

from __future__ import annotations

import json
from typing import Any, Final

from serving.constraints.ebnf import StructuralTag, grammar_tag
from serving.constraints.json_schema.grammar import grammar_of_source
from serving.constraints.json_schema.nodes import SchemaError, Unenforceable
from serving.constraints.parameters import is_enforced
from serving.constraints.rules import in_json
from serving.constraints.texts import text_tag
from serving.core.errors import InvalidGrammar, UnsupportedParameter
from serving.core.request import Tool, ToolChoice
from serving.core.tools import INPUT

_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_OBJECT: Final = {"type": "object"}


def arguments_tag(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """Return a tag of the tool's arguments as JSON. A custom tool has one argument, its input.

    A call that need not fit the tool's schema may have any object. Raises `InvalidGrammar` or
    `UnsupportedParameter`, as `json_tag` does.
    """
    if tool.input_grammar is not None:
        return text_tag(tool.input_grammar, in_json, before=f'{{"{INPUT}": "', after='"}')
    schema: Any = _ANY_OBJECT
    if is_enforced(tool, choice):
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    where = f"tools.{tool.name}.parameters"
    return json_tag(schema, param=where, is_strict=bool(tool.strict))


def json_tag(
    schema: Any, *, param: str = "tools", is_strict: bool = False, is_compact: bool = False
) -> StructuralTag:
    """Return a tag of the JSON values that fit the schema in the field `param`.

    `is_compact`: without blanks. Raises `InvalidGrammar` for a schema that is invalid or allows
    no value. If `is_strict`, raises `UnsupportedParameter` for a keyword that a grammar cannot
    enforce. Both have the path of the keyword.
    """
    source = json.dumps(schema, ensure_ascii=False)
    try:
        return grammar_tag(grammar_of_source(source, is_strict=is_strict, is_compact=is_compact))
    except Unenforceable as error:
        path = param + error.path
        raise UnsupportedParameter(
            f"`{path}` cannot be enforced: {error.reason}. Remove it, or do not set `strict`.",
            param=path,
        ) from None
    except SchemaError as error:
        path = param + error.path
        raise InvalidGrammar(f"`{path}` {error.reason}.", param=path) from None
