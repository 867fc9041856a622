"""Grammars of arguments that are written one by one, in another notation than JSON.

    city="Paris", days=3                      Python
    city:<|"|>Paris<|"|>,days:3               Gemma

The rules of a value are those of JSON. Every literal of the grammar that is itself a JSON value
(a constant of the schema, `true`) is replaced by the value in the other notation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serving.constraints.ebnf import TOKEN, StructuralTag, grammar_tag, prefixed, quoted
from serving.constraints.json_schema.grammar import json_grammar
from serving.constraints.parameters import (
    FREE,
    Parameter,
    Parameters,
    is_enforced,
    parameters_of,
)
from serving.constraints.rules import in_json, plain
from serving.constraints.texts import text_tag
from serving.core.request import Tool, ToolChoice
from serving.core.tools import INPUT


@dataclass(frozen=True, slots=True)
class Spelling:
    """A notation of arguments.

    `assign` follows a name, `comma` separates arguments. `key`: the names that can be written;
    `key_rule`: the same as a grammar rule. `value` writes a JSON value. `has_escapes`: strings
    have the escapes of JSON. `rules` replace the JSON rules of these names.
    """

    assign: str
    comma: str
    key: re.Pattern[str]
    key_rule: str
    value: Callable[[Any], str]
    quote: str = '"'
    has_escapes: bool = True
    rules: Mapping[str, str] = field(default_factory=dict)

    def of(self, grammar: str) -> str:
        """Return a grammar of JSON values in this notation."""
        lines = TOKEN.sub(lambda token: self._token(token[0]), grammar).splitlines()
        return "\n".join(self.rules.get(line.split(" ", 1)[0], line) for line in lines)

    def _token(self, token: str) -> str:
        if not token.startswith('"'):
            return token
        try:
            text = json.loads(token)
            if text == '"':
                return quoted(self.quote)
            value = json.loads(text)
        except ValueError:
            return token
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return token if is_number else quoted(self.value(value))


def python_value(value: Any) -> str:
    """Return a JSON value as Python writes it, with double quotes."""
    match value:
        case list():
            return f"[{', '.join(map(python_value, value))}]"
        case dict():
            items = (f"{python_value(key)}: {python_value(each)}" for key, each in value.items())
            return f"{{{', '.join(items)}}}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return repr(value)


PYTHON_NOTATION: Final = Spelling(
    assign="=",
    comma=", ",
    key=re.compile(r"[^\W\d]\w*"),
    key_rule="[A-Za-z_] [A-Za-z0-9_]{0,63}",
    value=python_value,
)


def notated_arguments_tag(
    tool: Tool, choice: ToolChoice, spelling: Spelling
) -> StructuralTag | None:
    """Return a tag of a call's arguments, without the text around them.

    None if the notation cannot express the tool's schema or a name. Raises `InvalidGrammar` for
    the grammar of a custom tool, and `SchemaError` for a parameter's schema.
    """
    if tool.input_grammar is not None:
        spell, excluded = (in_json, ()) if spelling.has_escapes else (plain, (spelling.quote,))
        begin = f"{INPUT}{spelling.assign}{spelling.quote}"
        return text_tag(
            tool.input_grammar, spell, before=begin, after=spelling.quote, excluded=excluded
        )
    parameters = parameters_of(tool) if is_enforced(tool, choice) else FREE
    if parameters is None or not all(
        spelling.key.fullmatch(parameter.name) for parameter in parameters.listed
    ):
        return None
    text = _free(spelling) if parameters.are_free else _listed(parameters, spelling)
    return grammar_tag(f"{text}\n{spelling.of(_JSON_RULES)}")


def _free(spelling: Spelling) -> str:
    member = f"key {quoted(spelling.assign)} value"
    more = f"({quoted(spelling.comma)} {member})*"
    return f"root ::= ({member} {more})?\nkey ::= {spelling.key_rule}"


def _listed(parameters: Parameters, spelling: Spelling) -> str:
    """Build rules from the last parameter to the first. Each writes the rest of the arguments,
    as the first argument or after another one."""
    rules: list[str] = []
    after = first = '""'
    for index, parameter in reversed(list(enumerate(parameters.listed))):
        member = f"{quoted(parameter.name + spelling.assign)} v{index}root {after}"
        without_first, without = (
            ("", "") if parameter.is_required else (f" | {first}", f" | {after}")
        )
        rules += [
            _value_rules(parameter, spelling, prefix=f"v{index}"),
            f"first{index} ::= {member}{without_first}",
            f"after{index} ::= {quoted(spelling.comma)} {member}{without}",
        ]
        first, after = f"first{index}", f"after{index}"
    return "\n".join([f"root ::= {first}", *rules])


def _value_rules(parameter: Parameter, spelling: Spelling, prefix: str) -> str:
    """The rules of one value. `prefix` keeps their names apart from those of other values."""
    common = _JSON_RULES.splitlines()
    lines = json_grammar(parameter.schema).splitlines()
    return spelling.of(prefixed("\n".join(line for line in lines if line not in common), prefix))


# The rules of JSON: the grammar of any value, without its root.
_JSON_RULES: Final = json_grammar(True).partition("\n")[2].strip()
