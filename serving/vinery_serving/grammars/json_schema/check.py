"""Checks all keywords of a JSON schema (2020-12, and draft 7 where it differs): their types, and
whether a grammar can enforce them."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from vinery_serving.core.field_limits import SCHEMA_NAMES
from vinery_serving.core.json_text import MAX_NUMBER_DIGITS, size_of
from vinery_serving.grammars.grammar.languages import NotRegular
from vinery_serving.grammars.grammar.patterns import InvalidPattern, search_language
from vinery_serving.grammars.json_schema.nodes import (
    TYPES,
    SchemaError,
    SchemaNode,
    Unenforceable,
    Untranslatable,
)

# Formats of the specification without a useful pattern.
_UNENFORCED_FORMATS: Final = frozenset(("regex", "uri-template"))


def check(document: Any) -> list[Unenforceable]:
    """Return the keywords that a grammar cannot enforce, in the order of the document. The limits
    of properties and values were checked when the request was read. Raises `SchemaError` for a
    schema that is invalid or has too many characters in names and values."""
    found = []
    num_chars = 0
    nodes = [SchemaNode((), document)]
    while nodes:
        node = nodes.pop()
        if isinstance(node.schema, bool):
            continue
        if not isinstance(node.schema, dict):
            raise SchemaError(node.steps, "must be an object or a boolean")
        found += [Unenforceable((*node.steps, word), why) for word, why in _unenforced(node)]
        num_chars += sum(_num_chars(word, node) for word in _COUNTED & node.keywords.keys())
        if num_chars > SCHEMA_NAMES.value:
            reason = f"has more than {SCHEMA_NAMES.value} characters in names and values"
            raise Untranslatable((), reason)
        nodes += reversed(list(_inside(node)))
    return found


def _num_chars(word: str, node: SchemaNode) -> int:
    """The characters of the names or the values of a keyword. Raises `SchemaError` for a number
    with too many digits."""
    value = node.keywords[word]
    if word in _NAMED:
        return sum(map(len, value))
    try:
        size = size_of(value)
        json.dumps(value, allow_nan=False)
    except ValueError:
        reason = f"has a number with more than {MAX_NUMBER_DIGITS} digits"
        raise SchemaError((*node.steps, word), reason) from None
    return size.num_chars + size.num_values


def _unenforced(node: SchemaNode) -> Iterator[tuple[str, str]]:
    for word, value in node.keywords.items():
        sentence, is_valid = _FORMS.get(word, _ANY)
        if not is_valid(value):
            raise SchemaError((*node.steps, word), f"must be {sentence}")
        if word in _UNENFORCED and not _has_no_effect(word, node.keywords):
            yield word, _UNENFORCED[word]
        if word in ("pattern", "patternProperties"):
            yield from _irregular(node, word, value)
        if word == "format" and value in _UNENFORCED_FORMATS:
            yield word, f"no grammar describes the format {value}"


def _irregular(node: SchemaNode, word: str, value: Any) -> Iterator[tuple[str, str]]:
    for pattern in [value] if word == "pattern" else value:
        try:
            search_language(pattern)
        except InvalidPattern as error:
            reason = f"is not a valid regular expression: {error}"
            raise SchemaError((*node.steps, word), reason) from None
        except NotRegular as error:
            yield word, str(error)


def _has_no_effect(word: str, keywords: Mapping[str, Any]) -> bool:
    """Whether a keyword allows everything that the other keywords allow."""
    match word:
        case "uniqueItems":
            return keywords[word] is False or keywords.get("maxItems", 2) <= 1
        case "unevaluatedProperties" | "unevaluatedItems":
            return keywords[word] is True
        case "then" | "else":
            return "if" not in keywords
        case "if":
            return not keywords.keys() & {"then", "else"}
        case "minContains" | "maxContains":
            return "contains" not in keywords
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            return not keywords[word]
        case _:
            return False


def _inside(node: SchemaNode) -> Iterator[SchemaNode]:
    for word, value in node.keywords.items():
        if word in _LISTS or (word == "items" and isinstance(value, list)):
            yield from (node.at(word, index) for index in range(len(value)))
        elif word in _SCHEMAS:
            yield node.at(word)
        elif word in _MAPS:
            yield from (node.at(word, name) for name in value)


_SCHEMAS: Final = frozenset(("items", "additionalProperties", "additionalItems", "propertyNames"))
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "$defs", "definitions"))
_MAPS: Final = _NAMED | {"patternProperties"}
_COUNTED: Final = _NAMED | {"enum", "const"}

_UNENFORCED_BY_REASON: Final = {
    "a grammar cannot leave out what another schema allows": ("not",),
    "a grammar cannot make one part depend on another": ("if", "then", "else"),
    "a grammar cannot make one property depend on another": (
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
    ),
    "a grammar does not remember the items before": ("uniqueItems",),
    "a grammar does not count the items that fit": ("contains", "minContains", "maxContains"),
    "use additionalProperties": ("unevaluatedProperties",),
    "use items": ("unevaluatedItems",),
    "use $ref": ("$dynamicRef", "$recursiveRef"),
}
_UNENFORCED: Final = {
    word: reason for reason, words in _UNENFORCED_BY_REASON.items() for word in words
}


_END: Final = 10**MAX_NUMBER_DIGITS


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -_END < value < _END


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return 0 < len(kinds) <= len(TYPES) and all(
        isinstance(kind, str) and kind in TYPES for kind in kinds
    )


# The form of a keyword's value, in words and as a test.
_Form = tuple[str, Callable[[Any], bool]]
_ANY: Final[_Form] = ("anything", lambda value: True)
_TYPES: Final[_Form] = (f"one of {', '.join(TYPES)}, or an array of these", _is_type)
_FILLED_ARRAY: Final[_Form] = (
    "an array that is not empty",
    lambda value: isinstance(value, list) and bool(value),
)
_OBJECT: Final[_Form] = ("an object", lambda value: isinstance(value, dict))
_NUMBER: Final[_Form] = (f"a number of at most {MAX_NUMBER_DIGITS} digits", _is_number)
_COUNT: Final[_Form] = (
    f"an integer from 0 of at most {MAX_NUMBER_DIGITS} digits",
    lambda value: _is_number(value) and value >= 0 and value == int(value),
)
_STRING: Final[_Form] = ("a string", lambda value: isinstance(value, str))
_FORMS: Final[Mapping[str, _Form]] = {
    "type": _TYPES,
    **dict.fromkeys(("enum", *_LISTS), _FILLED_ARRAY),
    **dict.fromkeys((*_MAPS, "dependentRequired", "dependentSchemas", "dependencies"), _OBJECT),
    "required": (
        "an array of strings",
        lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    "multipleOf": (
        f"a number above 0 of at most {MAX_NUMBER_DIGITS} digits",
        lambda value: _is_number(value) and value > 0,
    ),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
    **dict.fromkeys(("pattern", "format", "$ref"), _STRING),
}
