"""Whether a known JSON value fits a schema: for `enum` and `const` beside other keywords.

Keywords that a grammar cannot enforce are not checked here either.
"""

from collections.abc import Callable
from typing import Any, Final

from serving.constraints.grammar.languages import NotRegular, matches
from serving.constraints.grammar.patterns import search_language
from serving.constraints.json_schema.nodes import SchemaNode, constants_of, equal

Resolve = Callable[[SchemaNode], SchemaNode]


def fits(value: Any, node: SchemaNode, resolve: Resolve) -> bool:
    """Return whether a value fits a schema. `resolve` returns the target of its `$ref`."""
    if isinstance(node.schema, bool):
        return node.schema
    words = node.keywords

    def num_fitting(word: str) -> int:
        return sum(fits(value, node.at(word, at), resolve) for at in range(len(words[word])))

    return (
        fits_here(value, node, resolve)
        and ("$ref" not in words or fits(value, resolve(node), resolve))
        and ("allOf" not in words or num_fitting("allOf") == len(words["allOf"]))
        and ("anyOf" not in words or num_fitting("anyOf") > 0)
        and ("oneOf" not in words or num_fitting("oneOf") == 1)
    )


def fits_here(value: Any, node: SchemaNode, resolve: Resolve) -> bool:
    """Return whether a value fits the schema, apart from its `$ref`, `allOf`, `anyOf` and
    `oneOf`, which become alternatives."""
    words = node.keywords
    if not all(
        any(equal(value, each) for each in constants_of({word: words[word]}))
        for word in words.keys() & {"const", "enum"}
    ):
        return False
    kinds = words.get("type", _types_of(value))
    if not set(_types_of(value)) & set([kinds] if isinstance(kinds, str) else kinds):
        return False
    match value:
        case bool() | None:
            return True
        case str():
            return _is_count(len(value), node, "Length") and (
                "pattern" not in words or is_found(words["pattern"], value)
            )
        case int() | float():
            return all(
                is_met(value, words[word]) for word, is_met in _BOUNDS.items() if word in words
            )
        case list():
            items = ((each, node.item(at)) for at, each in enumerate(value))
            return _is_count(len(value), node, "Items") and all(
                item is None or fits(each, item, resolve) for each, item in items
            )
        case _:
            return _object_fits(value, node, resolve)


def _types_of(value: Any) -> tuple[str, ...]:
    match value:
        case bool():
            return ("boolean",)
        case None:
            return ("null",)
        case str():
            return ("string",)
        case int() | float():
            return ("number", "integer") if value == int(value) else ("number",)
        case list():
            return ("array",)
        case _:
            return ("object",)


_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, factor: value % factor == 0,
}


def is_found(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text; True for a pattern that is not regular."""
    try:
        return matches(search_language(pattern), text)
    except NotRegular:
        return True


def _is_count(count: int, node: SchemaNode, what: str) -> bool:
    words = node.keywords
    return bool(words.get(f"min{what}", 0) <= count <= words.get(f"max{what}", count))


def _object_fits(value: dict[str, Any], node: SchemaNode, resolve: Resolve) -> bool:
    words = node.keywords
    return (
        _is_count(len(value), node, "Properties")
        and value.keys() >= set(words.get("required", ()))
        and all(
            fits(each, member, resolve)
            for name, each in value.items()
            for member in member_nodes(node, name)
        )
        and (
            "propertyNames" not in words
            or all(fits(name, node.at("propertyNames"), resolve) for name in value)
        )
    )


def member_nodes(node: SchemaNode, name: str) -> list[SchemaNode]:
    """Return the schemas that the member of this name must fit, all of them."""
    words = node.keywords
    found = [node.at("properties", name)] if name in words.get("properties", {}) else []
    for pattern in words.get("patternProperties", ()):
        if is_found(pattern, name):
            found.append(node.at("patternProperties", pattern))
    if not found and "additionalProperties" in words:
        found.append(node.at("additionalProperties"))
    return found
