"""Checks all keywords of a JSON schema (2020-12, and draft 7 where it differs): their types, their
number, and which of them a grammar cannot enforce."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from vinery_serving.core.field_limits import SCHEMA_ENUM_VALUES, SCHEMA_NAMES, SCHEMA_PROPERTIES
from vinery_serving.core.json_text import MAX_NUMBER_DIGITS
from vinery_serving.grammars.grammar.languages import NotRegular
from vinery_serving.grammars.grammar.patterns import InvalidPattern, search_language
from vinery_serving.grammars.grammar.steps import spend
from vinery_serving.grammars.json_schema.nodes import (
    TYPES,
    SchemaError,
    SchemaNode,
    Steps,
    Unenforceable,
    Untranslatable,
)

# Formats of the specification without a useful pattern.
_UNENFORCED_FORMATS: Final = frozenset(("regex", "uri-template"))


def check(document: Any) -> list[Unenforceable]:
    """Return the keywords that a grammar cannot enforce, in the order of the document.

    Raises `SchemaError` for a schema that is invalid or exceeds a limit.
    """
    found = []
    size = _Size()
    nodes = [SchemaNode((), document)]
    while nodes:
        node = nodes.pop()
        spend()
        if isinstance(node.schema, bool):
            continue
        if not isinstance(node.schema, dict):
            raise SchemaError(node.steps, "must be an object or a boolean")
        spend(4 + 3 * len(node.schema))
        found += [Unenforceable((*node.steps, word), why) for word, why in _unenforced(node)]
        size.add(node)
        nodes += reversed(list(_inside(node)))
    return found


class _Size:
    """What the schemas of a document contain together."""

    def __init__(self) -> None:
        self._num_properties = 0
        self._num_required = 0
        self._num_values = 0
        self._num_chars = 0

    def add(self, node: SchemaNode) -> None:
        """Raises `SchemaError` if all schemas so far exceed a limit together."""
        words = node.keywords
        properties, required = words.get("properties", ()), words.get("required", ())
        self._num_properties += len(properties)
        self._num_required += len(required)
        if max(self._num_properties, self._num_required) > SCHEMA_PROPERTIES.value:
            raise Untranslatable((), f"has more than {SCHEMA_PROPERTIES.value} properties in all")
        self._num_values += len(words.get("enum", ()))
        if self._num_values > SCHEMA_ENUM_VALUES.value:
            reason = (
                f"exceeds the {SCHEMA_ENUM_VALUES.value} values that all `enum` may have together"
            )
            raise Untranslatable((*node.steps, "enum"), reason)
        for names in (properties, words.get("$defs", ()), words.get("definitions", ())):
            self._num_chars += sum(map(len, names))
        for word in words.keys() & {"enum", "const"}:
            self._num_chars += _num_chars(words[word], (*node.steps, word))
        if self._num_chars > SCHEMA_NAMES.value:
            reason = f"has more than {SCHEMA_NAMES.value} characters in names and values"
            raise Untranslatable((), reason)


def _num_chars(value: Any, steps: Steps) -> int:
    """The characters of a value of a schema, not counting blanks. Raises `SchemaError` for a
    number with too many digits."""
    num_chars = 0
    stack = [value]
    while stack:
        spend()
        match each := stack.pop():
            case str():
                num_chars += len(each)
            case list():
                num_chars += len(each)
                stack += each
            case dict():
                num_chars += sum(map(len, each))
                stack += each.values()
            case int() | float() if not _is_short(each):
                raise SchemaError(steps, f"has a number with more than {MAX_NUMBER_DIGITS} digits")
            case _:
                num_chars += 1
    return num_chars


def _is_short(number: float) -> bool:
    """Whether a number is finite, also as a double."""
    return math.isfinite(number) if isinstance(number, float) else -_END < number < _END


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
_MAPS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))

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
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_short(value)


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return 0 < len(kinds) <= len(TYPES) and all(
        isinstance(kind, str) and kind in TYPES for kind in kinds
    )


def _are_strings(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    spend(len(value))
    return all(isinstance(each, str) for each in value)


# What a keyword must be, in words and as a test.
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
    "required": ("an array of strings", _are_strings),
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
