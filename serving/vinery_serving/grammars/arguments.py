"""The arguments of tool calls: as JSON, as a list of parameters, or in another notation.

city="Paris", days=3                      Python
city:<|"|>Paris<|"|>,days:3               Gemma
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.tools import INPUT
from vinery_serving.grammars.grammar.ebnf import TOKEN, StructuralTag, grammar_tag, prefixed, quoted
from vinery_serving.grammars.grammar.rules import in_json, plain
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import text_tag

_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def _is_enforced(tool: Tool, choice: ToolChoice) -> bool:
    return choice.mode is not ToolMode.AUTO or bool(tool.strict)


def arguments_tag(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """Return a tag of the tool's arguments as JSON. A custom tool has one argument, its input. A
    call that need not fit the tool's schema may have any object. Raises `InvalidGrammar` or
    `UnsupportedParameter`, as `json_tag` does."""
    if tool.input_grammar is not None:
        return text_tag(tool.input_grammar, in_json, before=f'{{"{INPUT}": "', after='"}')
    schema: Any = {"type": "object"}
    if _is_enforced(tool, choice):
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    where = f"tools.{tool.name}.parameters"
    return json_tag(schema, param=where, is_strict=bool(tool.strict))


DEFINITIONS: Final = ("$defs", "definitions")
# Keywords of an object's schema that a list of parameters expresses, or that have no effect.
_KNOWN_KEYWORDS: Final = frozenset(
    (
        *("$comment", "$id", "$schema", "title", "description", "default", "examples"),
        *("type", "properties", "required", "additionalProperties", *DEFINITIONS),
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`schema` is a whole document, with the definitions of the tool's schema."""

    name: str
    schema: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a tool, in the schema's order. `are_free`: any arguments fit."""

    listed: tuple[Parameter, ...] = ()
    are_free: bool = False


FREE: Final = Parameters(are_free=True)


def parameters_of(tool: Tool, choice: ToolChoice) -> Parameters | None:
    """Return the parameters of a call; None if a list of parameters cannot express the schema. If
    the schema lists properties, a call has no others, as in the grammars of JSON schemas."""
    if not _is_enforced(tool, choice):
        return FREE
    if tool.parameters is None:
        return Parameters()
    schema: Mapping[str, Any] = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_list = (
        schema.keys() <= _KNOWN_KEYWORDS
        and schema.get("type", "object") == "object"
        and isinstance(properties, Mapping)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
    )
    if not is_list:
        return None
    others = schema.get("additionalProperties")
    if not properties and others is not False:
        return FREE if others in (None, True) else None
    always = frozenset(required)
    definitions = {word: schema[word] for word in DEFINITIONS if word in schema}
    listed = []
    for name, each in properties.items():
        document = {**definitions, **each} if isinstance(each, Mapping) else each
        listed.append(Parameter(name, document, name in always))
    return Parameters(tuple(listed))


@dataclass(frozen=True, slots=True)
class ArgumentNotation:
    """How a family writes arguments. `assign` follows a name, `comma` separates arguments and
    items, `colon` follows a key inside a value. `key`: names that can be written. `constant` writes
    a number, a boolean or null. `has_escapes`: strings have the escapes of JSON. `rules` replace
    the JSON rules of these names."""

    assign: str
    comma: str
    colon: str
    key: re.Pattern[str]
    constant: Callable[[Any], str]
    quote: str = '"'
    has_escapes: bool = True
    rules: Mapping[str, str] = field(default_factory=dict)

    def of(self, grammar: str) -> str:
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

    def value(self, value: Any) -> str:
        match value:
            case list():
                return f"[{self.comma.join(map(self.value, value))}]"
            case dict():
                items = (f"{self.value(k)}{self.colon}{self.value(v)}" for k, v in value.items())
                return f"{{{self.comma.join(items)}}}"
            case str() if self.has_escapes:
                return json.dumps(value, ensure_ascii=False)
            case str():
                return f"{self.quote}{value}{self.quote}"
            case _:
                return self.constant(value)


PYTHON_NOTATION: Final = ArgumentNotation(
    assign="=", comma=", ", colon=": ", key=re.compile(r"[^\W\d]\w*"), constant=repr
)


def notated_arguments_tag(
    tool: Tool, choice: ToolChoice, notation: ArgumentNotation
) -> StructuralTag | None:
    """Return a tag of a call's arguments, without the text around them. None if the notation cannot
    express the tool's schema or a name. Raises `InvalidGrammar` for an invalid schema, or an
    invalid grammar of a custom tool."""
    if tool.input_grammar is not None:
        spell, excluded = (in_json, ()) if notation.has_escapes else (plain, (notation.quote,))
        begin = f"{INPUT}{notation.assign}{notation.quote}"
        return text_tag(
            tool.input_grammar, spell, before=begin, after=notation.quote, excluded=excluded
        )
    parameters = parameters_of(tool, choice)
    if parameters is None or not all(notation.key.fullmatch(p.name) for p in parameters.listed):
        return None
    if parameters.are_free:
        member = f"key {quoted(notation.assign)} value"
        more = f"({quoted(notation.comma)} {member})*"
        text = f"root ::= ({member} {more})?\nkey ::= [A-Za-z_] [A-Za-z0-9_]{{0,63}}"
    else:
        text = _listed(parameters, notation)
    return grammar_tag(f"{text}\n{notation.of(_JSON_RULES)}")


def _listed(parameters: Parameters, notation: ArgumentNotation) -> str:
    """Build rules from the last parameter to the first. Each rule writes the rest of the arguments,
    from the first argument on or after another argument."""
    rules: list[str] = []
    after = first = '""'
    common = _JSON_RULES.splitlines()
    for index, parameter in reversed(list(enumerate(parameters.listed))):
        lines = json_tag(parameter.schema)["grammar"].splitlines()
        own = "\n".join(line for line in lines if line not in common)
        member = f"{quoted(parameter.name + notation.assign)} v{index}root {after}"
        is_required = parameter.is_required
        or_first, or_after = ("", "") if is_required else (f" | {first}", f" | {after}")
        rules += [
            notation.of(prefixed(own, f"v{index}")),
            f"first{index} ::= {member}{or_first}",
            f"after{index} ::= {quoted(notation.comma)} {member}{or_after}",
        ]
        first, after = f"first{index}", f"after{index}"
    return "\n".join([f"root ::= {first}", *rules])


# The rules of JSON: the grammar of any value, without its root.
_JSON_RULES: Final = json_tag(True)["grammar"].partition("\n")[2].strip()
