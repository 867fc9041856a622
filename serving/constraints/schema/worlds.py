"""What a value must fit: sets of places in a schema, without references and options left.

References and `allOf` add places to a set; each option of `anyOf` and `oneOf` makes a set of
its own. The functions below read from such a set what it says of values of one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from serving.constraints.schema import regular
from serving.constraints.schema.numerals import END, Bound
from serving.constraints.schema.pattern import IrregularPattern, found_in, fully
from serving.constraints.schema.regular import Regular
from serving.constraints.schema.values import equal, item_place
from serving.constraints.schema.vocabulary import NOTES, TYPES, Place, SchemaError

# A set of places that a value must fit, in the order of the schema.
World = tuple[Place, ...]

# How many sets one value may have before the schema is refused. Real ones have a few.
_MAX_OPTIONS: Final = 500
# No answer has more items or characters, so a larger bound is none.
_MAX_COUNT: Final = 1_000_000

_KINDS_BY_WORD: Final[Mapping[str, tuple[str, ...]]] = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class Unfolding:
    """The document in which references are followed."""

    def __init__(self, document: Any) -> None:
        self.root = Place((), document)
        # Those whose `oneOf` must not have two options that fit.
        self.exclusive: dict[Place, None] = {}

    def worlds(self, places: Iterable[Place]) -> list[World]:
        """The ways in which all these can be fitted, each a set of places without options."""
        return self._product(self._unfolded(place, ()) for place in places)

    def _unfolded(self, place: Place, trail: World) -> list[World]:
        if isinstance(place.schema, bool):
            return [()] if place.schema else []
        if place in trail:
            raise SchemaError(place.steps, "refers to itself without anything in between")
        trail, words = (*trail, place), place.words
        choices: list[list[World]] = [[(place,)]]
        if "$ref" in words:
            choices.append(self._unfolded(self.target(place), trail))
        for at in range(len(words.get("allOf", ()))):
            choices.append(self._unfolded(place.at("allOf", at), trail))
        for word in ("anyOf", "oneOf"):
            if word in words:
                options = [place.at(word, at) for at in range(len(words[word]))]
                choices.append([each for one in options for each in self._unfolded(one, trail)])
        if "oneOf" in words:
            self.exclusive[place] = None
        return self._product(choices)

    def _product(self, choices: Iterable[list[World]]) -> list[World]:
        worlds: list[World] = [()]
        for options in choices:
            if len(worlds) * len(options) > _MAX_OPTIONS:
                raise SchemaError((), f"has a value with more than {_MAX_OPTIONS} combinations")
            worlds = [(*world, *option) for world in worlds for option in options]
        return list(dict.fromkeys(tuple(dict.fromkeys(world)) for world in worlds))

    def target(self, place: Place) -> Place:
        """What the `$ref` of a place points at."""
        reference, steps = place.words["$ref"], (*place.steps, "$ref")
        if not reference.startswith("#"):
            raise SchemaError(steps, "must begin with #: other documents are not fetched")
        found = self.root
        for step in reference.removeprefix("#").split("/")[1:] if reference != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            inner: str | int = name
            if isinstance(found.schema, list) and name.isdecimal():
                inner = int(name)
            try:
                found = found.at(inner)
            except (KeyError, IndexError, TypeError):
                raise SchemaError(steps, f"points at nothing: {reference}") from None
        if found is self.root and reference not in ("#", "#/"):
            raise SchemaError(steps, f"points at nothing: {reference}")
        if not isinstance(found.schema, dict | bool):
            raise SchemaError(steps, f"points at no schema: {reference}")
        return found

    def followed(self, place: Place) -> Place:
        """The target of what is nothing but a reference, so that it has one rule for all."""
        seen = {place}
        while place.words.keys() - NOTES == {"$ref"} and (target := self.target(place)) not in seen:
            place = target
            seen.add(place)
        return place

    def are_apart(self, left: Place, right: Place) -> bool:
        """A quick look: unions are mostly told apart by type, or by a property's constant."""
        one, other = self.followed(left), self.followed(right)
        kinds, other_kinds = set(kinds_of((one,))), set(kinds_of((other,)))
        if "number" in kinds | other_kinds:
            kinds, other_kinds = (
                {"number" if kind == "integer" else kind for kind in each}
                for each in (kinds, other_kinds)
            )
        if not kinds & other_kinds:
            return True
        shared = set(one.words.get("required", ())) & set(other.words.get("required", ()))
        return any(
            _are_different(
                one.words.get("properties", {}).get(name),
                other.words.get("properties", {}).get(name),
            )
            for name in shared
        )


def kinds_of(world: Sequence[Place]) -> list[str]:
    """The types that all places allow; without a word on types, those they speak of."""
    told = [place.words["type"] for place in world if "type" in place.words]
    if told:
        sets = [{each} if isinstance(each, str) else set(each) for each in told]
        kinds = [
            kind
            for kind in TYPES
            if all(kind in each or (kind == "integer" and "number" in each) for each in sets)
        ]
    else:
        words = {word for place in world for word in place.words}
        kinds = [kind for kind in TYPES if words & set(_KINDS_BY_WORD.get(kind, ()))] or list(TYPES)
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds]


def counts_of(world: Sequence[Place], what: str) -> tuple[int, int | None]:
    """The narrowest bounds. A minimum above the maximum is told where it is noticed: nothing
    fits."""
    least = max((int(place.words.get(f"min{what}", 0)) for place in world), default=0)
    tops = [int(place.words[f"max{what}"]) for place in world if f"max{what}" in place.words]
    most = min(tops, default=None)
    if least > _MAX_COUNT:
        place = next(each for each in world if each.words.get(f"min{what}", 0) > _MAX_COUNT)
        raise SchemaError((*place.steps, f"min{what}"), f"must be at most {_MAX_COUNT}")
    return least, None if most is None or most > _MAX_COUNT else most


def count_listed(place: Place) -> int:
    """How many items a schema describes one by one."""
    items = place.words.get("items")
    return len(items) if isinstance(items, list) else len(place.words.get("prefixItems", ()))


def speaks_of_more_items(place: Place) -> bool:
    """Whether items may follow those that are described one by one."""
    items, others = place.words.get("items", False), place.words.get("additionalItems", False)
    return others is not False if isinstance(items, list) else items is not False


def items_of(world: Sequence[Place], index: int) -> list[Place]:
    """What the item at an index must fit."""
    found = [item_place(place, index) for place in world]
    return [place for place in found if place is not None and place.schema not in (True, {})]


def places_of_unknown(world: Sequence[Place], matched: Sequence[str]) -> list[Place] | None:
    """What a member must fit whose name matches these patterns; None when it is not wanted:
    additional members are, where the schema speaks of them."""
    places: list[Place] = []
    is_wanted = False
    for place in world:
        own = [each for each in place.words.get("patternProperties", ()) if each in matched]
        places += [place.at("patternProperties", each) for each in own]
        if not own and "additionalProperties" in place.words:
            places.append(place.at("additionalProperties"))
        is_wanted = is_wanted or bool(own) or "additionalProperties" in place.words
    names_none = not any(
        place.words.get("properties") or place.words.get("patternProperties") for place in world
    )
    return places if is_wanted or names_none else None


def demands_of(world: Sequence[Place], known_formats: Mapping[str, str]) -> Iterator[Regular]:
    """The patterns that a text must have, and the formats, by the patterns given for them."""
    for place in world:
        if "pattern" in place.words:
            yield language_of(place.words["pattern"])
        pattern = known_formats.get(place.words.get("format", ""))
        if pattern is not None:
            yield _format_language(pattern)


@lru_cache(maxsize=64)
def _format_language(pattern: str) -> Regular:
    return fully(pattern)


def language_of(pattern: str) -> Regular:
    """The texts with this pattern; all, where no automaton can say."""
    try:
        return found_in(pattern)
    except IrregularPattern:
        return regular.ANYTHING


def lowest(world: Sequence[Place]) -> Bound | None:
    """Where numbers begin; None below all numerals."""
    bounds = _ends(world, "minimum", "exclusiveMinimum")
    low = max(bounds, key=lambda each: (each.value, each.is_exclusive), default=None)
    return None if low is None or low.value < -END else low


def highest(world: Sequence[Place]) -> Bound | None:
    """Where numbers end; None above all numerals."""
    bounds = _ends(world, "maximum", "exclusiveMaximum")
    high = min(bounds, key=lambda each: (each.value, not each.is_exclusive), default=None)
    return None if high is None or high.value > END else high


def _ends(world: Sequence[Place], inclusive: str, exclusive: str) -> list[Bound]:
    return [
        Bound(decimal_of(place.words[word]), is_exclusive=word == exclusive)
        for place in world
        for word in (inclusive, exclusive)
        if word in place.words
    ]


def decimal_of(number: float) -> Decimal:
    """The number as it was written, not as a float holds it."""
    return Decimal(repr(number))


def _are_different(left: Any, right: Any) -> bool:
    one, other = _constants(left), _constants(right)
    return bool(one and other) and not any(equal(a, b) for a in one for b in other)


def _constants(schema: Any) -> list[Any]:
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))
