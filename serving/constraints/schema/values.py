"""Whether a known value fits a schema: for `enum` and `const` beside other keywords.

Of keywords that no grammar can hold nothing is checked here either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from serving.constraints.schema.pattern import IrregularPattern, found_in
from serving.constraints.schema.regular import TooManyStates, matches
from serving.constraints.schema.vocabulary import Place

Resolve = Callable[[Place], Place]


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, and true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def fits(value: Any, place: Place, resolve: Resolve) -> bool:
    """Whether a value fits the schema at a place. `resolve` follows its `$ref`."""
    if isinstance(place.schema, bool):
        return place.schema
    words = place.words
    options = {
        word: sum(fits(value, place.at(word, at), resolve) for at in range(len(words[word])))
        for word in ("allOf", "anyOf", "oneOf")
        if word in words
    }
    return (
        fits_here(value, place, resolve)
        and ("$ref" not in words or fits(value, resolve(place), resolve))
        and options.get("allOf", 0) == len(words.get("allOf", ()))
        and options.get("anyOf", 1) > 0
        and options.get("oneOf", 1) == 1
    )


def fits_here(value: Any, place: Place, resolve: Resolve) -> bool:
    """The same, but for the place's references and options, which are unfolded elsewhere."""
    words = place.words
    if "const" in words and not equal(value, words["const"]):
        return False
    if "enum" in words and not any(equal(value, each) for each in words["enum"]):
        return False
    kinds = words.get("type", _kinds_of(value))
    if not set(_kinds_of(value)) & set([kinds] if isinstance(kinds, str) else kinds):
        return False
    match value:
        case bool() | None:
            return True
        case str():
            return _string_fits(value, place)
        case int() | float():
            orders = ((is_met, words[word]) for word, is_met in _ORDERS.items() if word in words)
            return all(is_met(value, bound) for is_met, bound in orders)
        case list():
            return _array_fits(value, place, resolve)
        case _:
            return _object_fits(value, place, resolve)


def _kinds_of(value: Any) -> tuple[str, ...]:
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


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, factor: value % factor == 0,
}


def _string_fits(value: str, place: Place) -> bool:
    words = place.words
    return _counts_fit(len(value), place, "Length") and (
        "pattern" not in words or is_found(words["pattern"], value)
    )


def is_found(pattern: str, text: str) -> bool:
    """Whether a pattern is in a text; yes, where no automaton can say."""
    try:
        return matches(found_in(pattern), text)
    except (IrregularPattern, TooManyStates):
        return True


def _counts_fit(count: int, place: Place, what: str) -> bool:
    words = place.words
    return bool(words.get(f"min{what}", 0) <= count <= words.get(f"max{what}", count))


def _array_fits(value: list[Any], place: Place, resolve: Resolve) -> bool:
    return _counts_fit(len(value), place, "Items") and all(
        fits(each, item, resolve)
        for at, each in enumerate(value)
        if (item := item_place(place, at)) is not None
    )


def _object_fits(value: dict[str, Any], place: Place, resolve: Resolve) -> bool:
    words = place.words
    return (
        _counts_fit(len(value), place, "Properties")
        and value.keys() >= set(words.get("required", ()))
        and all(
            fits(each, member, resolve)
            for name, each in value.items()
            for member in member_places(place, name)
        )
        and (
            "propertyNames" not in words
            or all(fits(name, place.at("propertyNames"), resolve) for name in value)
        )
    )


def item_place(place: Place, index: int) -> Place | None:
    """What the item at an index must fit; None for anything."""
    words = place.words
    listed = "items" if isinstance(words.get("items"), list) else "prefixItems"
    if index < len(words.get(listed, ())):
        return place.at(listed, index)
    rest = "additionalItems" if listed == "items" else "items"
    return place.at(rest) if rest in words else None


def member_places(place: Place, name: str) -> list[Place]:
    """What the member of this name must fit, all of it."""
    words = place.words
    found = [place.at("properties", name)] if name in words.get("properties", {}) else []
    for pattern in words.get("patternProperties", ()):
        if is_found(pattern, name):
            found.append(place.at("patternProperties", pattern))
    if not found and "additionalProperties" in words:
        found.append(place.at("additionalProperties"))
    return found
