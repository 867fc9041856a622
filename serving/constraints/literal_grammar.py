"""Grammars of arguments that are written one by one, in another notation than JSON.

    city="Paris", days=3                      Python
    city:<|"|>Paris<|"|>,days:3               Gemma

The values' rules are those of JSON, respelled: whatever in a grammar is itself a JSON value
(an enum's texts, `true`) is written as the notation has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serving.constraints.family import Shape
from serving.constraints.json_grammar import json_grammar
from serving.constraints.parameters import FREE, Parameter, Parameters, is_held, parameters_of
from serving.constraints.schema.regular import in_json, plain
from serving.constraints.texts import text_tag
from serving.core.request import TextGrammar, Tool, ToolChoice
from serving.core.tools import INPUT

# A literal, a set of characters, or the name of a rule.
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_]\w*')
_IS_KEY: Final = re.compile(r'\s*":"')


@dataclass(frozen=True, slots=True)
class Spelling:
    """A notation: of members, and of values. `key`: names that need no quotes as an argument's
    name; with `has_bare_keys` nowhere. `rules`: what replaces the rules of these names."""

    assign: str
    comma: str
    key: re.Pattern[str]
    key_rule: str
    value: Callable[[Any], str]
    has_bare_keys: bool = False
    quote: str = '"'
    has_escapes: bool = True  # in strings, those of JSON
    rules: Mapping[str, str] = field(default_factory=dict)

    def of(self, grammar: str) -> str:
        """A grammar of JSON, in this notation."""

        def respelled(part: re.Match[str]) -> str:
            is_bare = self.has_bare_keys and bool(_IS_KEY.match(part.string, part.end()))
            return self._literal(part[0], is_bare=is_bare) if part[0][0] == '"' else part[0]

        lines = _PART.sub(respelled, grammar).splitlines()
        return "\n".join(self.rules.get(line.split(" ", 1)[0], line) for line in lines)

    def _literal(self, literal: str, *, is_bare: bool) -> str:
        try:
            text = json.loads(literal)
            if text == '"':
                return _literal(self.quote)
            value = json.loads(text)
        except ValueError:
            return literal
        if is_bare and isinstance(value, str) and self.key.fullmatch(value):
            return _literal(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return literal if is_number else _literal(self.value(value))


def spelled_arguments_tag(tool: Tool, choice: ToolChoice, spelling: Spelling) -> Shape | None:
    """The arguments of a call, without what stands around them.

    None where a rule of the schema, or a name, cannot be written in this notation.
    """
    if tool.input_grammar is not None:
        return _input(tool.input_grammar, spelling)
    parameters = parameters_of(tool) if is_held(tool, choice) else FREE
    if parameters is None:
        return None
    text = _free(spelling) if parameters.are_free else _listed(parameters, spelling)
    return None if text is None else {"type": "grammar", "grammar": text}


def _input(grammar: TextGrammar, spelling: Spelling) -> Shape:
    """The only argument of a custom tool."""
    spell, unwanted = (in_json, ()) if spelling.has_escapes else (plain, (spelling.quote,))
    begin = f"{INPUT}{spelling.assign}{spelling.quote}"
    return text_tag(grammar, spell, before=begin, after=spelling.quote, unwanted=unwanted)


def python_value(value: Any) -> str:
    """A JSON value as Python writes it, with double quotes."""
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


PYTHON_SPELLING: Final = Spelling(
    assign="=",
    comma=", ",
    key=re.compile(r"[^\W\d]\w*"),
    key_rule="[A-Za-z_] [A-Za-z0-9_]{0,63}",
    value=python_value,
)


def _free(spelling: Spelling) -> str:
    member = f"key {_literal(spelling.assign)} value"
    more = f"({_literal(spelling.comma)} {member})*"
    return f"root ::= ({member} {more})?\nkey ::= {spelling.key_rule}\n{_basics(spelling)}"


def _listed(parameters: Parameters, spelling: Spelling) -> str | None:
    """Rules from the last parameter to the first: each says how the arguments go on from
    there, after another one or as their first."""
    rules: list[str] = []
    after = first = '""'
    for index, parameter in reversed(list(enumerate(parameters.listed))):
        value = _value_rules(parameter, spelling, prefix=f"v{index}")
        if value is None:
            return None
        member = f"{_literal(parameter.name + spelling.assign)} v{index}root"
        is_left_out = "" if parameter.is_required else " | "
        rules += [
            value,
            f"first{index} ::= {member} {after}{is_left_out and is_left_out + first}",
            f"after{index} ::= {_literal(spelling.comma)} {member} {after}"
            f"{is_left_out and is_left_out + after}",
        ]
        first, after = f"first{index}", f"after{index}"
    return "\n".join([f"root ::= {first}", *rules, _basics(spelling)])


def _value_rules(parameter: Parameter, spelling: Spelling, prefix: str) -> str | None:
    """The rules of one value, under names that no other value's rules have."""
    grammar = json_grammar(parameter.schema)
    if grammar is None or not spelling.key.fullmatch(parameter.name):
        return None
    common = _BASICS.splitlines()
    names = {line.split(" ", 1)[0] for line in common}

    def renamed(part: re.Match[str]) -> str:
        is_own = part[0][0] not in '"[' and part[0] not in names
        return f"{prefix}{part[0]}" if is_own else part[0]

    own = "\n".join(line for line in grammar.splitlines() if line and line not in common)
    return spelling.of(_PART.sub(renamed, own))


def _basics(spelling: Spelling) -> str:
    return spelling.of(_BASICS)


def _literal(text: str) -> str:
    """A text as a literal of the grammar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# The rules that all grammars of JSON share: those of any value but the root.
_BASICS: Final = "\n".join((json_grammar(True) or "").splitlines()[1:]).strip()
