"""Regular languages: sets of texts that can be intersected and complemented.

An expression is turned into an automaton by derivatives: what may follow after a character
is an expression again (Brzozowski 1964; character classes as in Owens, Reppy and Turon 2009).
That gives intersection and complement for free, which backtracking engines do not have, and
a match takes time in proportion to the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final, assert_never

from serving.constraints.schema import ebnf
from serving.constraints.schema.ebnf import Intervals

_LAST: Final = 0x10FFFF
# JSON text is UTF-8, which has no surrogates.
ANY_CHARS: Final[Intervals] = ((0, 0xD7FF), (0xE000, _LAST))
# States of one automaton: more make grammars that are slow to compile.
MAX_STATES: Final = 2000
# Nodes of all expressions that are derived for one automaton, or one match: expressions may
# grow while their states stay few. At some microseconds each, this is below a second.
MAX_WORK: Final = 100_000


class TooManyStates(Exception):
    """The automaton of an expression has more than `MAX_STATES`, or takes `MAX_WORK`."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; without any, no text at all."""

    intervals: Intervals


@dataclass(frozen=True, slots=True)
class Cat:
    """Both, one after the other. None of them: the empty text."""

    parts: tuple[Regular, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of these."""

    options: frozenset[Regular]


@dataclass(frozen=True, slots=True)
class And:
    """All of these at once."""

    demands: frozenset[Regular]


@dataclass(frozen=True, slots=True)
class Not:
    """Everything else."""

    part: Regular


@dataclass(frozen=True, slots=True)
class Times:
    """From `least` to `most` times."""

    part: Regular
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Multiple:
    """Decimal numerals without a sign of the multiples of `factor` / 10**`num_decimals`.

    `remainder` is what the digits so far leave; `num_left` says how many digits may still
    follow the point, None before it.
    """

    factor: int
    num_decimals: int
    remainder: int = 0
    num_left: int | None = None


Regular = Chars | Cat | Or | And | Not | Times | Multiple

EMPTY: Final = Cat(())
NOTHING: Final = Chars(())
ANY: Final = Chars(ANY_CHARS)
ANYTHING: Final = Times(ANY, 0, None)
_DIGITS: Final[Intervals] = ((48, 57),)


def literal(text: str) -> Regular:
    """This text."""
    return cat(*(Chars(((ord(each), ord(each)),)) for each in text))


def cat(*parts: Regular) -> Regular:
    """One after the other."""
    flat: list[Regular] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Cat) else (part,)
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def either(options: Iterable[Regular]) -> Regular:
    """One of these."""
    flat: set[Regular] = set()
    for option in options:
        flat |= option.options if isinstance(option, Or) else {option}
    flat.discard(NOTHING)
    sets = [option.intervals for option in flat if isinstance(option, Chars)]
    if len(sets) > 1:
        flat = {option for option in flat if not isinstance(option, Chars)}
        flat.add(Chars(union(*sets)))
    if ANYTHING in flat:
        return ANYTHING
    if not flat:
        return NOTHING
    return flat.pop() if len(flat) == 1 else Or(frozenset(flat))


def both(*demands: Regular) -> Regular:
    """All of these at once."""
    flat: set[Regular] = set()
    for demand in demands:
        flat |= demand.demands if isinstance(demand, And) else {demand}
    flat.discard(ANYTHING)
    if NOTHING in flat:
        return NOTHING
    if not flat:
        return ANYTHING
    return flat.pop() if len(flat) == 1 else And(frozenset(flat))


def but_not(part: Regular) -> Regular:
    """Every other text."""
    if isinstance(part, Not):
        return part.part
    return ANYTHING if part == NOTHING else Not(part)


def times(part: Regular, least: int = 0, most: int | None = None) -> Regular:
    """So many times."""
    if most == 0 or part == EMPTY:
        return EMPTY
    if part == NOTHING:
        return EMPTY if least == 0 else NOTHING
    return part if (least, most) == (1, 1) else Times(part, least, most)


# -- Sets of characters ---------------------------------------------------------------------


def union(*sets: Intervals) -> Intervals:
    """What is in any of them."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(each for intervals in sets for each in intervals):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def common(left: Intervals, right: Intervals) -> Intervals:
    """What is in both."""
    found, at, other = [], 0, 0
    while at < len(left) and other < len(right):
        first, last = max(left[at][0], right[other][0]), min(left[at][1], right[other][1])
        if first <= last:
            found.append((first, last))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return tuple(found)


def others(intervals: Intervals) -> Intervals:
    """Every character that is not among them."""
    gaps, start = [], 0
    for first, last in intervals:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= _LAST:
        gaps.append((start, _LAST))
    return common(tuple(gaps), ANY_CHARS)


# -- Derivatives ----------------------------------------------------------------------------


def takes_empty(part: Regular) -> bool:
    """Whether the empty text belongs to it."""
    match part:
        case Chars():
            return False
        case Cat(parts):
            return all(takes_empty(each) for each in parts)
        case Or(options):
            return any(takes_empty(each) for each in options)
        case And(demands):
            return all(takes_empty(each) for each in demands)
        case Not(inner):
            return not takes_empty(inner)
        case Times(inner, least):
            return least == 0 or takes_empty(inner)
        case Multiple(factor, num_decimals, remainder, num_left):
            num_zeros = num_decimals if num_left is None else num_left
            return (remainder * int(10**num_zeros)) % factor == 0
        case _:
            assert_never(part)


def after(part: Regular, code: int) -> Regular:
    """What may follow once this character is there."""
    match part:
        case Chars(intervals):
            return EMPTY if any(first <= code <= last for first, last in intervals) else NOTHING
        case Cat(parts):
            ways = []
            for at, each in enumerate(parts):
                ways.append(cat(after(each, code), *parts[at + 1 :]))
                if not takes_empty(each):
                    break
            return either(ways)
        case Or(options):
            return either(after(each, code) for each in options)
        case And(demands):
            return both(*(after(each, code) for each in demands))
        case Not(inner):
            return but_not(after(inner, code))
        case Times(inner, least, most):
            rest = times(inner, max(0, least - 1), None if most is None else most - 1)
            return cat(after(inner, code), rest)
        case Multiple():
            return _after_digit(part, code)
        case _:
            assert_never(part)


def _after_digit(part: Multiple, code: int) -> Regular:
    if code == ord("."):
        is_free = part.num_left is None and part.num_decimals > 0
        return _moved(part, part.remainder, part.num_decimals) if is_free else NOTHING
    if not 48 <= code <= 57 or part.num_left == 0:
        return NOTHING
    num_left = None if part.num_left is None else part.num_left - 1
    return _moved(part, (part.remainder * 10 + code - 48) % part.factor, num_left)


def _moved(part: Multiple, remainder: int, num_left: int | None) -> Multiple:
    return Multiple(part.factor, part.num_decimals, remainder, num_left)


def _classes(part: Regular) -> frozenset[Intervals]:
    """Sets that part the characters so that each set has one derivative."""
    match part:
        case Chars(intervals):
            return frozenset((intervals, others(intervals)))
        case Cat(parts):
            kept = []
            for each in parts:
                kept.append(each)
                if not takes_empty(each):
                    break
            return _refined(kept)
        case Or(inner) | And(inner):
            return _refined(inner)
        case Not(inner) | Times(inner):
            return _classes(inner)
        case Multiple():
            single = [((code, code),) for code in (46, *range(48, 58))]
            return frozenset((*single, others(union(*single))))
        case _:
            assert_never(part)


def _refined(parts: Iterable[Regular]) -> frozenset[Intervals]:
    def refine(left: frozenset[Intervals], right: frozenset[Intervals]) -> frozenset[Intervals]:
        return frozenset(shared for a in left for b in right if (shared := common(a, b)))

    return reduce(refine, (_classes(part) for part in parts), frozenset((ANY_CHARS,)))


def _size(part: Regular) -> int:
    """Its nodes that a derivative looks at, more or less."""
    match part:
        case Cat(inner) | Or(inner) | And(inner):
            return 1 + sum(_size(each) for each in inner)
        case Not(each) | Times(each):
            return 1 + _size(each)
        case Chars() | Multiple():
            return 1
        case _:
            assert_never(part)


def matches(part: Regular, text: str) -> bool:
    """Whether a text belongs to it. Raises `TooManyStates`."""
    work = 0
    for character in text:
        work += _size(part)
        if work > MAX_WORK:
            raise TooManyStates
        part = after(part, ord(character))
        if part == NOTHING:
            return False
    return takes_empty(part)


def lengths(part: Regular) -> tuple[int, int | None]:
    """At least and at most so many characters, as far as it can be seen; None is no end."""
    match part:
        case Chars():
            return 1, 1
        case Cat(parts):
            each = [lengths(one) for one in parts]
            tops = [top for _, top in each if top is not None]
            return sum(low for low, _ in each), sum(tops) if len(tops) == len(each) else None
        case Or(options):
            each = [lengths(one) for one in options]
            tops = [top for _, top in each if top is not None]
            return min(low for low, _ in each), max(tops) if len(tops) == len(each) else None
        case Times(inner, least, most):
            low, top = lengths(inner)
            return low * least, None if top is None or most is None else top * most
        case And() | Not() | Multiple():
            return 0, None
        case _:
            assert_never(part)


# -- Grammars -------------------------------------------------------------------------------

# How a set of characters is written where the language is used: as it is, or in JSON.
Spelling = Callable[[Intervals], ebnf.Expr]


def as_expr(part: Regular, spell: Spelling) -> ebnf.Expr | None:
    """The expression of a grammar that says the same; None where only an automaton can."""
    match part:
        case Chars(intervals):
            return spell(intervals)
        case Cat(parts):
            inner = [as_expr(each, spell) for each in parts]
            return None if None in inner else ebnf.seq(*(each for each in inner if each))
        case Or(options):
            # A set has no order, and equal schemas must have equal grammars.
            inner = [as_expr(each, spell) for each in sorted(options, key=repr)]
            return None if None in inner else ebnf.alt(each for each in inner if each)
        case Times(each, least, most):
            # Repeating what may be empty has no end: only the automaton says it once.
            body = None if takes_empty(each) else as_expr(each, spell)
            return None if body is None else ebnf.Repeat(body, least, most)
        case And() | Not() | Multiple():
            return None
        case _:
            assert_never(part)


def as_rules(part: Regular, spell: Spelling, name: str) -> dict[str, ebnf.Expr]:
    """Rules for an automaton, one a state; the first is called `name`.

    Raises `TooManyStates`.
    """
    names = {part: name}
    rules: dict[str, ebnf.Expr] = {}
    queue = [part]
    work = 0
    while queue:
        state = queue.pop()
        by_target: dict[Regular, list[Intervals]] = {}
        classes = _classes(state)
        work += _size(state) * len(classes)
        if work > MAX_WORK:
            raise TooManyStates
        for intervals in classes:
            if intervals and (target := after(state, intervals[0][0])) != NOTHING:
                by_target.setdefault(target, []).append(intervals)
        for target in by_target:
            if target not in names:
                names[target] = f"{name}.{len(names)}"
                queue.append(target)
        if len(names) > MAX_STATES:
            raise TooManyStates
        moves = [
            ebnf.seq(spell(union(*sets)), ebnf.Ref(names[target]))
            for target, sets in sorted(by_target.items(), key=lambda each: min(each[1]))
        ]
        rules[names[state]] = ebnf.alt([*moves, *([ebnf.EMPTY] if takes_empty(state) else [])])
    return rules


def plain(intervals: Intervals) -> ebnf.Expr:
    """Characters as they are."""
    return ebnf.chars(intervals)


RAW_IN_JSON: Final = others(((0, 0x1F), (34, 34), (92, 92)))
_SPECIAL_IN_JSON: Final = others(RAW_IN_JSON)
_SHORT_ESCAPES: Final = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}


def in_json(intervals: Intervals) -> ebnf.Expr:
    """Characters as they stand inside a JSON string: escaped where they must be.

    The rule `char` is any of them, in whatever form, and `special` all that need an escape.
    """
    if intervals == ANY_CHARS:
        return ebnf.Ref("char")
    raw, special = common(intervals, RAW_IN_JSON), common(intervals, _SPECIAL_IN_JSON)
    options = [ebnf.chars(raw)] if raw else []
    if special == _SPECIAL_IN_JSON:
        return ebnf.alt([*options, ebnf.Ref("special")])
    codes = [code for first, last in special for code in range(first, last + 1)]
    escapes = [_SHORT_ESCAPES.get(code, f"u{code:04x}") for code in codes]
    return ebnf.alt([*options, *(ebnf.Text("\\" + escape) for escape in escapes)])
