"""JSON schemas as grammars of our own, in which everything comes to an end.

The engine's own translation allows any number of blanks between any two tokens of JSON,
and a weak model takes that as a way out: it writes blanks until its limit. Here there is
at most one, after a colon or a comma, as in the JSON that models have read most. Numbers
end, too. No schema is left to the engine: what is not translated here is refused, or, where
the client does not insist on it, left out.

What is written always fits; not all that fits is written. A schema's properties come in its
order, and others only where it speaks of them (`additionalProperties`, `patternProperties`)
or names none. A tuple has no more items than it lists. A schema without a type that speaks
of properties means objects, and so on. Bounded numbers have no exponents, and a text that
has both a pattern and a greatest length ends after 512 characters at the latest.

A value must fit a *set of places* in the schema: references and `allOf` add places to it,
each option of an `anyOf` makes a set of its own, and the members of the sets' objects are
sets again. There is one rule for each set, so that schemas may contain themselves.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

from serving.constraints.schema import formats, regular
from serving.constraints.schema.ebnf import (
    EMPTY,
    NEVER,
    Expr,
    Ref,
    Repeat,
    Seq,
    Text,
    alt,
    dead_end,
    productive,
    seq,
    text_of,
)
from serving.constraints.schema.json_rules import (
    ANY_MEMBER,
    COLON,
    COMMA,
    basics,
    json_text,
    some_of,
)
from serving.constraints.schema.numerals import Bound, integers, numbers
from serving.constraints.schema.regular import Regular, TooManyStates
from serving.constraints.schema.values import fits_here, member_places
from serving.constraints.schema.vocabulary import (
    Place,
    SchemaError,
    Steps,
    Unenforceable,
    check,
)
from serving.constraints.schema.worlds import (
    Unfolding,
    World,
    count_listed,
    counts_of,
    decimal_of,
    demands_of,
    highest,
    items_of,
    kinds_of,
    language_of,
    lowest,
    places_of_unknown,
    speaks_of_more_items,
)

__all__ = ["SchemaError", "Unenforceable", "grammar_of_source", "json_grammar"]

# What a schema may cost before it is refused. Real schemas stay far below.
_MAX_RULES: Final = 20_000
# Longer schemas are translated each time: the memory for them would be large.
_MAX_REMEMBERED_CHARS: Final = 50_000
# A text that has both a pattern and a length ends here at the latest, if it may.
_MAX_COUNTED_CHARS: Final = 512
_FEWER_COUNTED_CHARS: Final = 63  # the longest label of a host name, too
# States of all automata of a schema.
_MAX_STATES: Final = 10_000


def grammar_of_source(source: str, *, is_strict: bool, is_compact: bool = False) -> str:
    """`json_grammar` of a schema's JSON text: clients send the same again and again."""
    translate = _remembered if len(source) <= _MAX_REMEMBERED_CHARS else _remembered.__wrapped__
    return translate(source, is_strict=is_strict, is_compact=is_compact)


@lru_cache(maxsize=256)
def _remembered(source: str, *, is_strict: bool, is_compact: bool) -> str:
    return json_grammar(json.loads(source), is_strict=is_strict, is_compact=is_compact)


def json_grammar(schema: Any, *, is_strict: bool = False, is_compact: bool = False) -> str:
    """The grammar of values that fit `schema`, in the engine's EBNF.

    `is_compact`: no blanks at all. Raises `SchemaError` with the path of what is wrong in
    it or allows nothing, and, if `is_strict`, `Unenforceable` for what cannot be held to.
    Otherwise such keywords are left out: as OpenAI's `strict: false` has it, the answer is
    JSON in the schema's shape, and may miss a finer point.
    """
    try:
        unheld = check(schema)
        translation = _Translation(schema, is_compact=is_compact)
        text = translation.text()
        if is_strict:
            unheld += translation.unheld()
    except RecursionError:
        raise SchemaError((), "nests too deeply") from None
    if is_strict and unheld:
        raise unheld[0]
    return text


class _Translation:
    """Collects the rules of one schema."""

    def __init__(self, document: Any, *, is_compact: bool) -> None:
        self._places = Unfolding(document)
        self._is_compact = is_compact
        self._rules: dict[str, Expr] = dict(basics("" if is_compact else " "))
        self._names: dict[World, str] = {}
        self._queue: deque[tuple[str, World]] = deque()
        self._automata: dict[tuple[Regular, regular.Spelling], Ref] = {}
        self._num_states = 0
        self._unheld: list[Unenforceable] = []

    def text(self) -> str:
        """The grammar. Raises `SchemaError`."""
        root = self._value((self._places.root,))
        self._build()
        self._rules["root"] = root
        text = text_of(self._rules, "root")
        if text is None:
            raise SchemaError(self._dead_end(), "allows no value that comes to an end")
        return text

    def _dead_end(self) -> Steps:
        places = {name: world[0].steps for world, name in self._names.items()}
        way = [places[name] for name in dead_end(self._rules, "root") if name in places]
        return way[-1] if way else ()

    def unheld(self) -> list[Unenforceable]:
        """What was found on the way that the grammar does not hold to."""
        for place in list(self._places.exclusive):
            self._unheld += self._overlaps(place)
        return self._unheld

    # Values

    def _value(self, places: Iterable[Place]) -> Expr:
        """The rule for what fits all these places."""
        followed = dict.fromkeys(self._places.followed(place) for place in places)
        key = tuple(place for place in followed if place.schema not in (True, {}))
        if not key:
            return Ref("value")
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"v{len(self._names)}"
            self._queue.append((name, key))
        return Ref(name)

    def _build(self) -> None:
        while self._queue:
            name, places = self._queue.popleft()
            self._rules[name] = alt(self._of_all(world) for world in self._places.worlds(places))
            if len(self._rules) > _MAX_RULES:
                raise SchemaError((), "is too large: say it with fewer options and references")

    def _of_all(self, world: World) -> Expr:
        if any(place.words.keys() & {"enum", "const"} for place in world):
            return self._listed_values(world)
        return alt(self._of_kind(kind, world) for kind in kinds_of(world))

    def _of_kind(self, kind: str, world: World) -> Expr:
        match kind:
            case "object":
                return self._object(world)
            case "array":
                return self._array(world)
            case "string":
                return self._string(world)
            case "integer" | "number":
                return self._number(kind, world)
            case _:
                return Ref(kind)

    def _listed_values(self, world: World) -> Expr:
        listed = next(
            place.words["enum"] if "enum" in place.words else [place.words["const"]]
            for place in world
            if place.words.keys() & {"enum", "const"}
        )
        separators = (",", ":") if self._is_compact else (", ", ": ")
        return alt(
            Text(json.dumps(value, ensure_ascii=False, separators=separators))
            for value in listed
            if all(fits_here(value, place, self._places.target) for place in world)
        )

    # Objects

    def _object(self, world: World) -> Expr:
        names = dict.fromkeys(
            [name for place in world for name in place.words.get("properties", ())]
            + [name for place in world for name in place.words.get("required", ())]
        )
        required = {name for place in world for name in place.words.get("required", ())}
        least, most = counts_of(world, "Properties")
        members = [
            (self._member(name, world), name in required)
            for name in names
            if self._may_be_called(name, world)
        ]
        if required - {name for name in names if self._may_be_called(name, world)}:
            return NEVER
        other = self._other_member(world, names)
        if other is not None and least - len(required) > 1:
            self._note(world, "minProperties", "a grammar cannot tell new names from old ones")
        if not members and least <= 0 and most is None and other == ANY_MEMBER:
            return Ref("object")
        return seq(Text("{"), self._members(members, other, least, most), Text("}"))

    def _member(self, name: str, world: World) -> Expr:
        places = [found for place in world for found in member_places(place, name)]
        return seq(json_text(name), COLON, self._value(places))

    def _members(
        self,
        members: Sequence[tuple[Expr, bool]],
        other: Expr | None,
        least: int,
        most: int | None,
    ) -> Expr:
        """Rules from the last member to the first: each says how the object goes on, when so
        many members are there. Without bounds it only matters whether there are any."""
        num_all = len(members) if most is None else min(len(members), most)
        limit = 1 if (least <= 1 and most is None) else num_all
        rest = {
            count: self._others(other, count, least, most)
            for count in range(min(limit, num_all) + 1)
        }
        for member, is_required in reversed(members):
            rest = self._before(member, rest, limit, num_all, is_required=is_required)
        return rest[0]

    def _before(
        self, member: Expr, rest: dict[int, Expr], limit: int, num_all: int, *, is_required: bool
    ) -> dict[int, Expr]:
        found = {}
        for count in rest:
            is_full = count + 1 > num_all
            following = NEVER if is_full else rest.get(min(count + 1, limit), NEVER)
            with_it = seq(EMPTY if count == 0 else COMMA, member, following)
            options = [with_it] if is_required else [with_it, rest[count]]
            found[count] = self._named(alt(options))
        return found

    def _others(self, other: Expr | None, count: int, least: int, most: int | None) -> Expr:
        """Members that the schema does not name, after `count` that it does."""
        # With a count that stands for "some", a bound of one is met by any.
        lacking = max(0, least - count)
        room = None if most is None else most - count
        if other is None or room == 0:
            return EMPTY if lacking == 0 else NEVER
        return self._named(some_of(other, lacking, room, is_first=count == 0))

    def _other_member(self, world: World, names: Iterable[str]) -> Expr | None:
        """A member that the schema does not name; None where there is none."""
        speaks = any(
            place.words.get("additionalProperties", False) is not False
            or place.words.get("patternProperties")
            for place in world
        )
        is_closed = any(place.words.get("properties") for place in world)
        if is_closed and not speaks:
            return None
        patterns = sorted(
            {each for place in world for each in place.words.get("patternProperties", ())}
        )
        name_places = [
            place.at("propertyNames") for place in world if "propertyNames" in place.words
        ]
        if not patterns and not name_places and not names:
            if not any("additionalProperties" in place.words for place in world):
                return ANY_MEMBER
            places = [found for place in world for found in member_places(place, "")]
            return seq(Ref("string"), COLON, self._value(places))
        is_free = regular.but_not(regular.either(regular.literal(name) for name in names))
        names_language = regular.both(
            is_free, *(self._text_language((each,)) for each in name_places)
        )
        return alt(self._other_members(world, patterns, names_language))

    def _other_members(
        self, world: World, patterns: Sequence[str], free: Regular
    ) -> Iterator[Expr]:
        """One for each way in which a name can match some of the patterns and not the rest."""
        if len(patterns) > 4:
            self._note(world, "patternProperties", "there are more than four of them")
            patterns = patterns[:4]
        languages = {each: language_of(each) for each in patterns}
        for size in range(len(patterns) + 1):
            for matched in combinations(patterns, size):
                unmatched = [each for each in patterns if each not in matched]
                language = regular.both(
                    free,
                    *(languages[each] for each in matched),
                    *(regular.but_not(languages[each]) for each in unmatched),
                )
                places = places_of_unknown(world, matched)
                if places is None:
                    continue
                key = self._quoted_text(language)
                if key is not None:
                    yield seq(key, COLON, self._value(places))

    def _may_be_called(self, name: str, world: World) -> bool:
        places = tuple(
            place.at("propertyNames") for place in world if "propertyNames" in place.words
        )
        try:
            return not places or regular.matches(self._text_language(places), name)
        except TooManyStates:
            return True

    # Arrays

    def _array(self, world: World) -> Expr:
        least, most = counts_of(world, "Items")
        if most is not None and most < least:
            return NEVER
        num_listed = max((count_listed(place) for place in world), default=0)
        is_open = num_listed == 0 or any(speaks_of_more_items(place) for place in world)
        if not num_listed and least == 0 and most is None and not items_of(world, 0):
            return Ref("array")
        num_first = num_listed if most is None else min(num_listed, most)
        if is_open or least > num_listed:
            item = self._value(items_of(world, num_listed))
            room = None if most is None else most - num_first
            lacking = max(0, least - num_first)
            rest = some_of(item, lacking, room, is_first=num_first == 0)
        else:
            rest = EMPTY
        for index in reversed(range(num_first)):
            item = self._value(items_of(world, index))
            going_on = seq(EMPTY if index == 0 else COMMA, item, rest)
            rest = self._named(alt([going_on, EMPTY] if index >= least else [going_on]))
        return seq(Text("["), rest, Text("]"))

    # Texts and numbers

    def _string(self, world: World) -> Expr:
        least, most = counts_of(world, "Length")
        if most is not None and most < least:
            return NEVER
        demands = list(demands_of(world, formats.PATTERNS))
        if not demands:
            if (least, most) == (0, None):
                return Ref("string")
            return seq(Text('"'), Repeat(Ref("char"), least, most), Text('"'))
        if any(_is_within(regular.lengths(each), least, most) for each in demands):
            found = self._quoted_text(regular.both(*demands))
        else:
            short = regular.both(*demands_of(world, {**formats.PATTERNS, **formats.SHORT}))
            found = self._counted_text(short, least, most)
        if found is not None:
            return found
        self._note(world, "pattern", "its automaton is too large")
        return seq(Text('"'), Repeat(Ref("char"), least, most), Text('"'))

    def _counted_text(self, language: Regular, least: int, most: int | None) -> Expr | None:
        for end in (_MAX_COUNTED_CHARS, _FEWER_COUNTED_CHARS):
            top = None if most is None else max(least, min(most, end))
            bounded = regular.both(language, regular.times(regular.ANY, least, top))
            found = self._quoted_text(bounded)
            if found is not None or top == most:
                return found
        return None

    def _quoted_text(self, language: Regular) -> Expr | None:
        """A JSON string of the language; None when that takes too many rules."""
        inner = regular.as_expr(language, regular.in_json)
        if inner is None:
            inner = self._automaton(language, regular.in_json)
        return None if inner is None else seq(Text('"'), inner, Text('"'))

    def _text_language(self, places: World) -> Regular:
        """The strings that fit all these places, as a language."""
        return regular.either(self._world_language(world) for world in self._places.worlds(places))

    def _world_language(self, world: World) -> Regular:
        if "string" not in kinds_of(world):
            return regular.NOTHING
        least, most = counts_of(world, "Length")
        demands = [*demands_of(world, formats.PATTERNS), regular.times(regular.ANY, least, most)]
        for place in world:
            listed = [place.words["const"]] if "const" in place.words else []
            listed += place.words.get("enum", ())
            if listed:
                texts = [value for value in listed if isinstance(value, str)]
                demands.append(regular.either(regular.literal(text) for text in texts))
        return regular.both(*demands)

    def _number(self, kind: str, world: World) -> Expr:
        low, high = lowest(world), highest(world)
        factors = tuple(
            dict.fromkeys(
                decimal_of(place.words["multipleOf"])
                for place in world
                if "multipleOf" in place.words
            )
        )
        if not factors and low is None and high is None:
            return Ref(kind)
        if not factors and high is None and low == Bound(Decimal(0), is_exclusive=False):
            return Ref("natural" if kind == "integer" else "positive")
        language = (integers if kind == "integer" else numbers)(low, high, factors)
        found = self._automaton(language, regular.plain)
        if found is None:
            self._note(world, "multipleOf", "its automaton is too large")
            return Ref(kind)
        return found

    # Rules

    def _automaton(self, language: Regular, spell: regular.Spelling) -> Expr | None:
        known = self._automata.get((language, spell))
        if known is not None:
            return known
        name = f"a{len(self._rules)}"
        try:
            rules = regular.as_rules(language, spell, name)
        except TooManyStates:
            return None
        self._num_states += len(rules)
        if self._num_states > _MAX_STATES:
            raise SchemaError((), "is too large: it has too many patterns and bounds")
        self._rules |= rules
        self._automata[language, spell] = Ref(name)
        return Ref(name)

    def _named(self, body: Expr) -> Expr:
        """A rule of its own for what is long and used more than once."""
        if not isinstance(body, Seq | Repeat) and body in (EMPTY, NEVER):
            return body
        name = f"n{len(self._rules)}"
        self._rules[name] = body
        return Ref(name)

    def _note(self, world: Sequence[Place], word: str, reason: str) -> None:
        steps: Steps = next((place.steps for place in world if word in place.words), ())
        self._unheld.append(Unenforceable((*steps, word), reason))

    def _overlaps(self, place: Place) -> list[Unenforceable]:
        """Of the options of a `oneOf` those that may fit at once: of these, a grammar takes
        whichever comes."""
        options = [place.at("oneOf", at) for at in range(len(place.words["oneOf"]))]
        pairs = [
            (self._value(pair), pair)
            for pair in combinations(options, 2)
            if not self._places.are_apart(*pair)
        ]
        self._build()
        ending = productive(self._rules)
        for rule, (left, right) in pairs:
            if not isinstance(rule, Ref) or rule.name in ending:
                reason = f"options {left.steps[-1]} and {right.steps[-1]} may both fit: use anyOf"
                return [Unenforceable((*place.steps, "oneOf"), reason)]
        return []


def _is_within(range_: tuple[int, int | None], least: int, most: int | None) -> bool:
    low, top = range_
    return low >= least and (most is None or (top is not None and top <= most))
