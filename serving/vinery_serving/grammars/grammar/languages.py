"""Regular languages: sets of texts that can be united, intersected and complemented. An expression
becomes an automaton by derivatives: the texts that may follow a character are an expression again
(Brzozowski 1964; character classes as in Owens, Reppy and Turon 2009)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Final, assert_never

# Code points as pairs of first and last: sorted, disjoint and not adjacent.
Intervals = tuple[tuple[int, int], ...]

_LAST: Final = 0x10FFFF
# JSON text is UTF-8, which has no surrogates.
ANY_CHARS: Final[Intervals] = ((0, 0xD7FF), (0xE000, _LAST))
MAX_STATES: Final = 2000  # the states of one automaton. A grammar with more rules compiles slowly.
# The sizes of the expressions of one automaton or one match, for each set of characters with the
# same derivative: an expression can grow while the states stay few.
MAX_WORK: Final = 100_000


class NotRegular(Exception):
    """A valid pattern whose language is not regular, or too large."""


class TooManyStates(NotRegular):
    """An automaton with more than `MAX_STATES` states, or `MAX_WORK` of work."""

    def __init__(self) -> None:
        super().__init__("its automaton is too large")


class _Expression:
    """Computes each property of an expression once: derivatives share most of their parts."""

    @cached_property
    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]

    @cached_property
    def _hash(self) -> int:
        return hash(self._fields)  # the same in each process: unions are written in its order

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Expression)
            and type(self) is type(other)
            and self._hash == other._hash
            and self._fields == other._fields
        )

    @cached_property
    def accepts_empty(self) -> bool:
        return _accepts_empty(self)  # type: ignore[arg-type]

    @cached_property
    def size(self) -> int:
        return _size(self)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Chars(_Expression):
    """A character of a set. An empty set: no text at all."""

    intervals: Intervals


@dataclass(frozen=True, eq=False)
class Cat(_Expression):
    """All parts in order. No parts: the empty text."""

    parts: tuple[Language, ...]


@dataclass(frozen=True, eq=False)
class Or(_Expression):
    parts: frozenset[Language]


@dataclass(frozen=True, eq=False)
class And(_Expression):
    parts: frozenset[Language]


@dataclass(frozen=True, eq=False)
class Not(_Expression):
    part: Language


@dataclass(frozen=True, eq=False)
class Times(_Expression):
    """`least` to `most` repetitions. None: no upper bound."""

    part: Language
    least: int
    most: int | None


@dataclass(frozen=True, eq=False)
class Multiple(_Expression):
    """Decimal numerals without a sign of the multiples of `factor` / 10**`num_decimals`.
    `remainder` is the remainder of the digits read so far, as far as it matters: before the point
    of a price, no digit matters. `num_left` is how many digits may follow the point, or None before
    it."""

    factor: int
    num_decimals: int
    remainder: int = 0
    num_left: int | None = None


_NUMERAL_CHARS: Final[tuple[Intervals, ...]] = tuple(
    ((code, code),) for code in (46, *range(48, 58))
)

Language = Chars | Cat | Or | And | Not | Times | Multiple

EMPTY: Final = Cat(())
NOTHING: Final = Chars(())
ANY: Final = Chars(ANY_CHARS)
ANYTHING: Final = Times(ANY, 0, None)


def literal(text: str) -> Language:
    return cat(*(Chars(((ord(each), ord(each)),)) for each in text))


def cat(*parts: Language) -> Language:
    flat: list[Language] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Cat) else (part,)
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def union(options: Iterable[Language]) -> Language:
    """Return the union; of nothing, the empty language."""
    flat: set[Language] = set()
    for option in options:
        flat |= option.parts if isinstance(option, Or) else {option}
    sets = [option.intervals for option in flat if isinstance(option, Chars)]
    if len(sets) > 1:
        flat = {option for option in flat if not isinstance(option, Chars)}
        flat.add(Chars(merged(*sets)))
    return _combined(Or, flat, neutral=NOTHING, absorbing=ANYTHING)


def intersection(*demands: Language) -> Language:
    """Return the intersection; of nothing, all texts."""
    if len(demands) == 1:
        return demands[0]
    flat: set[Language] = set()
    for demand in demands:
        flat |= demand.parts if isinstance(demand, And) else {demand}
    return _combined(And, flat, neutral=ANYTHING, absorbing=NOTHING)


def _combined(
    kind: type[Or | And], parts: set[Language], *, neutral: Language, absorbing: Language
) -> Language:
    parts.discard(neutral)
    if absorbing in parts or not parts:
        return absorbing if parts else neutral
    return parts.pop() if len(parts) == 1 else kind(frozenset(parts))


def complement(part: Language) -> Language:
    if isinstance(part, Not):
        return part.part
    return ANYTHING if part == NOTHING else Not(part)


def times(part: Language, least: int = 0, most: int | None = None) -> Language:
    """Return `least` to `most` repetitions; None: no upper bound."""
    if most == 0 or part == EMPTY:
        return EMPTY
    if part == NOTHING:
        return EMPTY if least == 0 else NOTHING
    return part if (least, most) == (1, 1) else Times(part, least, most)


def containing(texts: Iterable[str]) -> Language:
    return union(cat(ANYTHING, literal(text), ANYTHING) for text in texts)


def merged(*sets: Intervals) -> Intervals:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(each for intervals in sets for each in intervals):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def shared(left: Intervals, right: Intervals) -> Intervals:
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


def inverted(intervals: Intervals) -> Intervals:
    """Return all other characters."""
    starts = [0, *(last + 1 for _, last in intervals)]
    ends = [*(first - 1 for first, _ in intervals), _LAST]
    gaps = ((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)
    return shared(tuple(gaps), ANY_CHARS)


def _accepts_empty(part: Language) -> bool:
    match part:
        case Chars():
            return False
        case Cat(inner) | And(inner):
            return all(each.accepts_empty for each in inner)
        case Or(options):
            return any(each.accepts_empty for each in options)
        case Not(each):
            return not each.accepts_empty
        case Times(each, least):
            return least == 0 or each.accepts_empty
        case Multiple(factor, num_decimals, remainder, num_left):
            num_zeros = num_decimals if num_left is None else num_left
            return (remainder * int(10**num_zeros)) % factor == 0
        case _:
            assert_never(part)


class Derivatives:
    """The texts that may follow a character, each computed once: the states of an automaton share
    most of their parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[Language, int], Language] = {}

    def of(self, part: Language, code: int) -> Language:
        if isinstance(part, Chars):
            inside = any(first <= code <= last for first, last in part.intervals)
            return EMPTY if inside else NOTHING
        found = self._known.get((part, code))
        if found is None:
            found = self._known[part, code] = self._new(part, code)
        return found

    def _new(self, part: Cat | Or | And | Not | Times | Multiple, code: int) -> Language:
        match part:
            case Cat(parts):
                first = _first_parts(parts)
                return union(
                    cat(self.of(each, code), *parts[at + 1 :]) for at, each in enumerate(first)
                )
            case Or(options):
                return union(self.of(each, code) for each in options)
            case And(demands):
                return intersection(*(self.of(each, code) for each in demands))
            case Not(inner):
                return complement(self.of(inner, code))
            case Times(inner, least, most):
                rest = times(inner, max(0, least - 1), None if most is None else most - 1)
                return cat(self.of(inner, code), rest)
            case Multiple():
                return _after_digit(part, code)
            case _:
                assert_never(part)


def _first_parts(parts: tuple[Language, ...]) -> tuple[Language, ...]:
    """The parts in which the first character of a text can be."""
    for end, part in enumerate(parts, 1):
        if not part.accepts_empty:
            return parts[:end]
    return parts


def _after_digit(part: Multiple, code: int) -> Language:
    remainder, num_left = part.remainder, part.num_left
    if code == ord(".") and num_left is None and part.num_decimals > 0:
        num_left = part.num_decimals
    elif 48 <= code <= 57 and num_left != 0:
        remainder = (remainder * 10 + code - 48) % part.factor
        num_left = None if num_left is None else num_left - 1
    else:
        return NOTHING
    # At least so many digits, or zeros for them, follow before the remainder must be 0.
    num_zeros = part.num_decimals if num_left is None else num_left
    remainder %= part.factor // gcd(part.factor, int(10**num_zeros))
    return Multiple(part.factor, part.num_decimals, remainder, num_left)


def _classes(part: Language) -> list[Intervals]:
    """Disjoint character sets. All characters of one set have the same derivative."""
    sets: dict[Intervals, None] = {ANY_CHARS: None}
    stack: list[Language] = [part]
    while stack:
        match each := stack.pop():
            case Chars(intervals):
                sets[intervals] = None
            case Cat(parts):
                stack += _first_parts(parts)
            case Or(inner) | And(inner):
                stack += inner
            case Not(inner) | Times(inner):
                stack.append(inner)
            case Multiple():
                sets |= dict.fromkeys(_NUMERAL_CHARS)
            case _:
                assert_never(each)
    return _atoms(list(sets))


def _atoms(sets: list[Intervals]) -> list[Intervals]:
    """The largest sets whose characters are in the same sets of these. The first of `sets` has
    all characters."""
    changes: dict[int, int] = {}
    for at, intervals in enumerate(sets):
        for first, last in intervals:
            changes[first] = changes.get(first, 0) ^ (1 << at)
            changes[last + 1] = changes.get(last + 1, 0) ^ (1 << at)
    atoms: dict[int, list[tuple[int, int]]] = {}
    inside = start = 0
    for code in sorted(changes):
        if inside & 1:
            atoms.setdefault(inside, []).append((start, code - 1))
        inside, start = inside ^ changes[code], code
    return [merged(tuple(intervals)) for intervals in atoms.values()]


def _size(part: Language) -> int:
    match part:
        case Cat(inner) | Or(inner) | And(inner):
            return 1 + sum(each.size for each in inner)
        case Not(each) | Times(each):
            return 1 + each.size
        case Chars() | Multiple():
            return 1
        case _:
            assert_never(part)


class Matcher:
    """Decides which texts belong to a language. The matcher remembers derivatives, so that many
    texts with the same parts take little more time than a single text."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._derivatives = Derivatives()

    def matches(self, text: str) -> bool:
        """Return whether the text belongs to the language. Raises `TooManyStates`."""
        part, work = self._language, 0
        for character in text:
            work += part.size
            if work > MAX_WORK:
                raise TooManyStates
            part = self._derivatives.of(part, ord(character))
            if part == NOTHING:
                return False
        return part.accepts_empty

    def may_match(self, text: str) -> bool:
        """Return the same, and True for a text that takes too much work."""
        try:
            return self.matches(text)
        except TooManyStates:
            return True


def automaton(language: Language) -> dict[Language, list[tuple[Intervals, Language]]]:
    """Return the moves of each state to other states; the first state is `language` itself. A state
    accepts the text if it `accepts_empty`. Raises `TooManyStates`."""
    states: dict[Language, list[tuple[Intervals, Language]]] = {language: []}
    derivatives = Derivatives()
    queue = [language]
    work = 0
    while queue:
        state = queue.pop()
        classes = _classes(state)
        work += state.size * len(classes)
        if work > MAX_WORK:
            raise TooManyStates
        by_target: dict[Language, list[Intervals]] = {}
        for intervals in classes:
            if (target := derivatives.of(state, intervals[0][0])) != NOTHING:
                by_target.setdefault(target, []).append(intervals)
        for target in by_target:
            if target not in states:
                states[target] = []
                queue.append(target)
        if len(states) > MAX_STATES:
            raise TooManyStates
        moves = sorted(by_target.items(), key=lambda each: min(each[1]))
        states[state] = [(merged(*sets), target) for target, sets in moves]
    return states


def length_bounds(part: Language) -> tuple[int, int | None]:
    """Return a lower and an upper bound of the texts' lengths in characters. They are no narrower
    than the language, but may be wider. None: no upper bound is known."""
    match part:
        case Chars():
            return 1, 1
        case Cat(inner) | Or(inner):
            pairs = [length_bounds(each) for each in inner]
            low, high = (sum, sum) if isinstance(part, Cat) else (min, max)
            tops = [top for _, top in pairs if top is not None]
            return low(least for least, _ in pairs), (
                high(tops) if len(tops) == len(pairs) else None
            )
        case Times(each, least, most):
            bottom, top = length_bounds(each)
            return bottom * least, None if top is None or most is None else top * most
        case And() | Not() | Multiple():
            return 0, None
        case _:
            assert_never(part)
