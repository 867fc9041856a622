"""The numbers of a schema alternative as a regular language of decimal numerals. Before the point
are at most 20 digits, or as many as the bounds demand, and after the point a few. Numbers with
bounds have no exponents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, prod
from typing import Final

from vinery_serving.grammars.grammar.languages import (
    MAX_STATES,
    NOTHING,
    Chars,
    Language,
    Multiple,
    TooManyStates,
    cat,
    complement,
    intersection,
    literal,
    times,
    union,
)
from vinery_serving.grammars.json_schema.nodes import SchemaNode

_NUM_DIGITS: Final = 20
_FLOAT_DIGITS: Final = 15  # a float distinguishes all numbers with so many digits
_MAX_DECIMALS: Final = 6
# The automaton of a multiple has states for each digit and remainder, so the numerals of multiples
# with more remainders are shorter.
_MAX_REMAINDERS: Final = 10
_NUM_DIGITS_OF_MULTIPLES: Final = 9

_DIGIT: Final = Chars(((48, 57),))
_NOT_ZERO: Final = Chars(((49, 57),))
_ANY_DIGITS: Final = times(_DIGIT)
_ANY_DECIMALS: Final = times(cat(literal("."), times(_DIGIT, 1)), 0, 1)
_MINUS: Final = literal("-")


@dataclass(frozen=True, slots=True)
class Bound:
    value: Decimal
    is_exclusive: bool = False


_POSITIVE: Final = Bound(Decimal(0), is_exclusive=True)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Numbers between two bounds (None: no bound) that are multiples of all factors."""

    low: Bound | None = None
    high: Bound | None = None
    factors: tuple[Decimal, ...] = ()

    def integers(self) -> Language:
        low, high = self.low, self.high
        if low is not None:
            low = Bound(Decimal(floor(low.value) + 1 if low.is_exclusive else ceil(low.value)))
        if high is not None:
            high = Bound(Decimal(ceil(high.value) - 1 if high.is_exclusive else floor(high.value)))
        # An integer is a multiple of 5/2 if it is a multiple of 5.
        factors = tuple(Decimal(Fraction(factor).numerator) for factor in self.factors)
        return NumberRange(low, high, factors)._numerals(num_decimals=0)

    def numbers(self) -> Language:
        ends = self._ends()
        # As many decimals as a float can distinguish near the bounds.
        num_whole = max((len(str(int(abs(end)))) for end in ends), default=1)
        # One decimal more than the bounds have: exclusive bounds may differ in the last decimal.
        own = max((len(each) + 1 for end in ends if (each := _decimals(end))), default=0)
        return self._numerals(max(own, min(_MAX_DECIMALS, _FLOAT_DIGITS - 1 - num_whole)))

    @property
    def num_digits(self) -> int:
        """The digits of the numeral next to the bound that all numbers exceed, or 20."""
        low, high = self.low, self.high
        nearest = max(low.value if low else 0, -high.value if high else 0)
        return max(_NUM_DIGITS, len(str(int(nearest))) + 1)

    def _ends(self) -> list[Decimal]:
        return [end.value for end in (self.low, self.high) if end is not None]

    def _numerals(self, num_decimals: int) -> Language:
        size = self._sizes(num_decimals)
        demands = [union((size, cat(_MINUS, intersection(size, _above(_POSITIVE)))))]
        if self.low is not None:
            demands.append(_at_least(self.low))
        if self.high is not None:
            demands.append(_at_most(self.high))
        return intersection(*demands)

    def _sizes(self, num_decimals: int) -> Language:
        """Numerals without a sign. Raises `TooManyStates`."""
        num_digits = self.num_digits
        decimals_of = [(factor, len(_decimals(factor))) for factor in self.factors]
        multiples = [Multiple(int(factor.scaleb(num)), num) for factor, num in decimals_of]
        is_open = self.low is None or self.high is None
        if is_open and any(each.factor > MAX_STATES for each in multiples):
            raise TooManyStates  # an automaton has a state for each remainder
        if prod(each.factor for each in multiples) > _MAX_REMAINDERS:
            together = Decimal(prod(self.factors))
            longest = max(len(str(int(abs(end)))) for end in (*self._ends(), together))
            num_digits = max(_NUM_DIGITS_OF_MULTIPLES, longest + 1)
        decimals = cat(literal("."), times(_DIGIT, 1, num_decimals)) if num_decimals else NOTHING
        natural = union((literal("0"), cat(_NOT_ZERO, times(_DIGIT, 0, num_digits - 1))))
        return intersection(cat(natural, times(decimals, 0, 1)), *multiples)


ALL_NUMBERS: Final = NumberRange()
NOT_NEGATIVE: Final = NumberRange(low=Bound(Decimal(0)))


def number_range(nodes: Sequence[SchemaNode]) -> NumberRange:
    """Return the range of the number keywords of all nodes. A bound outside of all numerals has no
    effect."""
    lows = _bounds(nodes, "minimum", "exclusiveMinimum")
    highs = _bounds(nodes, "maximum", "exclusiveMaximum")
    low = max(lows, key=lambda each: (each.value, each.is_exclusive), default=None)
    high = min(highs, key=lambda each: (each.value, not each.is_exclusive), default=None)
    factors = [_decimal(node, "multipleOf") for node in nodes if "multipleOf" in node.keywords]
    wanted = NumberRange(low, high, tuple(dict.fromkeys(factors)))
    end = 10**wanted.num_digits
    if low is not None and low.value < -end:
        wanted = replace(wanted, low=None)
    return replace(wanted, high=None) if high is not None and high.value > end else wanted


def _bounds(nodes: Sequence[SchemaNode], inclusive: str, exclusive: str) -> Iterator[Bound]:
    for node in nodes:
        for word in (inclusive, exclusive):
            if word in node.keywords:
                yield Bound(_decimal(node, word), is_exclusive=word == exclusive)


def _decimal(node: SchemaNode, word: str) -> Decimal:
    """The number as the schema writes it, not the nearest float."""
    return Decimal(repr(node.keywords[word]))


def _at_least(bound: Bound) -> Language:
    if bound.value > 0 or bound == _POSITIVE:
        return _above(bound)
    return union((_ANY_SIZE, cat(_MINUS, _below(Bound(-bound.value, bound.is_exclusive)))))


def _at_most(bound: Bound) -> Language:
    if bound.value < 0 or bound == _POSITIVE:
        return cat(_MINUS, _above(Bound(-bound.value, bound.is_exclusive)))
    return union((cat(_MINUS, _ANY_SIZE), _below(bound)))


_ANY_SIZE: Final = cat(union((literal("0"), cat(_NOT_ZERO, _ANY_DIGITS))), _ANY_DECIMALS)


def _below(bound: Bound) -> Language:
    """Return the sizes up to a bound that is not negative."""
    return intersection(_ANY_SIZE, complement(_above(Bound(bound.value, not bound.is_exclusive))))


def _above(bound: Bound) -> Language:
    whole = int(bound.value)
    decimals = _decimals(bound.value)
    more = cat(_natural_from(whole + 1), _ANY_DECIMALS)
    if not decimals and not bound.is_exclusive:
        return union((more, cat(literal(str(whole)), _ANY_DECIMALS)))
    nonzero = cat(times(literal("0")), _NOT_ZERO, _ANY_DIGITS)
    same = cat(literal(decimals), nonzero if bound.is_exclusive else _ANY_DIGITS)
    greater = _greater(decimals, lambda num_left: _ANY_DIGITS)
    return union((more, cat(literal(f"{whole}."), union((*greater, same)))))


def _natural_from(number: int) -> Language:
    digits = str(number)
    longer = cat(_NOT_ZERO, times(_DIGIT, len(digits)))
    greater = _greater(digits, lambda num_left: times(_DIGIT, num_left, num_left))
    return union((literal(digits), *greater, longer))


def _greater(digits: str, rest: Callable[[int], Language]) -> Iterator[Language]:
    """Yield a language for each digit that a greater digit can replace; `rest` gets the number of
    digits after that digit."""
    for at, digit in enumerate(digits):
        if digit != "9":
            greater = Chars(((ord(digit) + 1, ord("9")),))
            yield cat(literal(digits[:at]), greater, rest(len(digits) - at - 1))


def _decimals(value: Decimal) -> str:
    return f"{value:f}".partition(".")[2].rstrip("0")
