"""The calls of families that write arguments between tags (see the parser `tagged`). Strings are
raw text there and have special rules: any text up to the closing tag, one of some texts, or a text
of a bounded length. All other values are JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from vinery_serving.core.errors import GrammarTooLarge, UnsupportedParameter, cited
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.tools import INPUT
from vinery_serving.grammars.family import (
    ANY_TEXT,
    Family,
    GrammarFamily,
    Marks,
    is_enforced,
    sequence,
    tag,
)
from vinery_serving.grammars.grammar.ebnf import StructuralTag, grammar_tag, quoted
from vinery_serving.grammars.grammar.rules import plain
from vinery_serving.grammars.json_schema.translator import check_schema, json_tag
from vinery_serving.grammars.texts import text_tag
from vinery_serving.output.parsers import messages
from vinery_serving.output.parsers import tagged as parsers
from vinery_serving.output.parsers.argument_types import (
    MAX_DEPTH,
    Kind,
    schema_types,
    target,
    value_kind,
)
from vinery_serving.output.parsers.base import ParserFamily
from vinery_serving.output.parsers.messages import MESSAGE, ONYX_REASONING, ONYX_TAGS
from vinery_serving.output.parsers.tagged import CDATA, TagSyntax

_NOTHING: Final = grammar_tag('root ::= ""')
# Repetitions are unrolled by the compiler: a longer bound is not worth its cost.
_MAX_LENGTH: Final = 256
# The same limit as on alternatives of a JSON value: references to the parameter itself double the
# options.
_MAX_OPTIONS: Final = 500
_STRING_WORDS: Final = frozenset(("format", "maxLength", "minLength", "pattern"))
_DEFINITIONS: Final = ("$defs", "definitions")
# Keywords of an object's schema that a list of parameters expresses, or that have no effect.
_KNOWN_KEYWORDS: Final = frozenset(
    (
        *("$comment", "$id", "$schema", "title", "description", "default", "examples"),
        *("type", "properties", "required", "additionalProperties", *_DEFINITIONS),
    )
)


def _call(syntax: TagSyntax, tool: Tool, choice: ToolChoice) -> StructuralTag:
    """Return a call as a tag, in the family's wrapper, if any. Raises `UnsupportedParameter` for a
    strict tool whose schema is more than a list of parameters. Calls of other tools may have any
    arguments then."""
    if tool.input_grammar is not None:
        excluded = (syntax.value_end, CDATA) if syntax.has_cdata else (syntax.value_end,)
        text = text_tag(tool.input_grammar, plain, excluded=excluded)
        content = _argument_tag(syntax, INPUT, text)
    elif (schemas := _parameters(tool, choice)) is None:
        content = ANY_TEXT
    else:
        required = (tool.parameters or {}).get("required", ())
        listed = [
            _argument(syntax, name, schema, is_required=name in required)
            for name, schema in schemas.items()
        ] or [_NOTHING]
        content = sequence(*listed) if len(listed) > 1 else listed[0]
    name = f"{syntax.call_begin}{tool.name}{syntax.name_end}{syntax.after_name}"
    return tag(
        f"{syntax.wrapper}{syntax.after_wrapper}{name}",
        content,
        f"{syntax.call_end}{syntax.after_wrapper}{syntax.wrapper_end}",
    )


def _parameters(tool: Tool, choice: ToolChoice) -> Mapping[str, Any] | None:
    """Return the schemas of all parameters, each a whole document, in their order; None if any
    arguments fit. If the schema lists properties, a call has no others, as in the grammars of JSON
    schemas."""
    if not is_enforced(tool, choice):
        return None
    if tool.parameters is None:
        return {}
    schema: Mapping[str, Any] = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    others = schema.get("additionalProperties")
    is_list = (
        schema.keys() <= _KNOWN_KEYWORDS
        and schema.get("type", "object") == "object"
        and isinstance(properties, Mapping)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
        and (properties or others in (None, True, False))
    )
    if not is_list and tool.strict:
        raise UnsupportedParameter(
            f"This model writes arguments one by one, so the schema of the strict tool "
            f"{cited(repr(tool.name))} can only be an object with `properties`, `required`, "
            f"`additionalProperties` and `$defs`.",
            param="tools",
        )
    if not is_list or (not properties and others is not False):
        return None
    definitions = {word: schema[word] for word in _DEFINITIONS if word in schema}
    return {
        name: {**definitions, **each} if isinstance(each, Mapping) else each
        for name, each in properties.items()
    }


def _argument(syntax: TagSyntax, name: str, schema: Any, *, is_required: bool) -> StructuralTag:
    argument = _argument_tag(syntax, name, _value(schema))
    return argument if is_required else _one([argument, _NOTHING])


def _argument_tag(syntax: TagSyntax, name: str, value: StructuralTag) -> StructuralTag:
    line = "\n" if syntax.has_lines else ""
    key = f"{syntax.key_begin}{name}{syntax.key_end}{syntax.after_key}"
    end = f"{line}{syntax.value_end}{syntax.after_value}"
    return tag(f"{key}{syntax.value_begin}{line}", value, end)


def _value(schema: Any) -> StructuralTag:
    """JSON, or raw text, or a choice of both. A schema that allows any string allows any
    text."""
    document = schema if isinstance(schema, Mapping) else {}
    if value_kind(schema_types(schema, document)) is Kind.JSON:
        return json_tag(schema)
    found = list(islice(_options_of(schema, document), _MAX_OPTIONS + 1))
    if len(found) > _MAX_OPTIONS:
        raise GrammarTooLarge(
            f"`tools` has a parameter that is too large: use at most {_MAX_OPTIONS} options.",
            param="tools",
        )
    options = [_option(each, document) for each in found]
    return ANY_TEXT if ANY_TEXT in options else _one(options)


def _options_of(
    schema: Any, document: Mapping[str, Any], depth: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The schemas that a value of `schema`, a part of `document`, has the choice of:
    references are followed, and strings separated from other types. Keywords beside a reference
    or a choice are left out."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        yield {}
        return
    match schema:
        case {"$ref": str(reference)}:
            yield from _options_of(target(document, reference), document, depth + 1)
        case {"anyOf": [*options]} | {"oneOf": [*options]} if options:
            for each in options:
                yield from _options_of(each, document, depth + 1)
        case {"allOf": [only]}:
            yield from _options_of(only, document, depth + 1)
        case {"type": [*names]} if "string" in names and len(names) > 1:
            others = {word: schema[word] for word in schema if word not in _STRING_WORDS}
            rest = [name for name in names if name != "string"]
            yield from ({**schema, "type": "string"}, {**others, "type": rest})
        case _:
            yield schema


def _option(schema: Mapping[str, Any], document: Mapping[str, Any]) -> StructuralTag:
    """Raises `InvalidGrammar` for an invalid schema."""
    check_schema({word: schema[word] for word in schema if word not in _DEFINITIONS})
    kind = value_kind(schema_types(schema, document))
    if kind is Kind.JSON:
        definitions = {word: document[word] for word in _DEFINITIONS if word in document}
        return json_tag({**definitions, **schema})
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
        return grammar_tag(f"root ::= {' | '.join(map(quoted, texts))}")
    return _text(schema) if kind is Kind.TEXT else ANY_TEXT


def _text(schema: Mapping[str, Any]) -> StructuralTag:
    if isinstance(schema.get("pattern"), str):
        return {"type": "regex", "pattern": schema["pattern"]}
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if (most is None and least == 0) or max(least, most or 0) > _MAX_LENGTH:
        return ANY_TEXT
    upper = "" if most is None else most
    return grammar_tag(f"root ::= [^<]{{{least},{upper}}}")


def _one(options: Sequence[StructuralTag]) -> StructuralTag:
    return options[0] if len(options) == 1 else {"type": "or", "elements": list(options)}


def _onyx_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """A forced call begins with the head of its message."""
    call = _call(ONYX_TAGS, tool, choice)
    if choice.mode is ToolMode.AUTO:
        return call
    return {**call, "begin": f" to={tool.name}{MESSAGE}{call['begin']}"}


def _family(name: str, marks: Marks, parser: ParserFamily, syntax: TagSyntax) -> Family:
    return Family(name, marks, parser, GrammarFamily(partial(_call, syntax), syntax.opening.text))


QWEN3CODER = _family(
    "qwen3coder", (("<function=", "<parameter="),), parsers.QWEN3CODER, parsers.QWEN3CODER_TAGS
)
GLM4 = _family("glm4", (("<arg_key>",),), parsers.GLM4, parsers.GLM4_TAGS)
MINICPM5 = _family(
    "minicpm5", (('<function name="', '<param name="'),), parsers.MINICPM5, parsers.MINICPM5_TAGS
)
ONYX = Family(
    "onyx",
    (("<atem:",),),
    messages.ONYX,
    GrammarFamily(
        _onyx_call,
        trigger=ONYX_TAGS.opening.text,
        separator=ONYX_REASONING.closing,
        answer_begin=f" to=user{MESSAGE}",
        reasoning=ONYX_REASONING,
        may_reason_first=True,
    ),
)
