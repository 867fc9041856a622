"""Numbers between bounds, as regular languages of their decimal numerals.

All numerals end: up to 15 digits before the point, so that every client reads integers
exactly, and a few after it. Bounded numbers have no exponents.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Final

from serving.constraints.schema.regular import (
    NOTHING,
    Chars,
    Multiple,
    Regular,
    both,
    but_not,
    cat,
    either,
    literal,
    times,
)

_NUM_DIGITS: Final = 15
END: Final = 10**_NUM_DIGITS
_MAX_DECIMALS: Final = 6
_DIGIT: Final = Chars(((48, 57),))
_NOT_ZERO: Final = Chars(((49, 57),))
_ANY_DIGITS: Final = times(_DIGIT)
# Automata of multiples have states for each digit, so these have fewer where they may.
_NUM_DIGITS_OF_MULTIPLES: Final = 9
_MINUS: Final = literal("-")


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range."""

    value: Decimal
    is_exclusive: bool


# What has a sign is not zero.
_ZERO: Final = Bound(Decimal(0), is_exclusive=True)


def _natural(num_digits: int = _NUM_DIGITS) -> Regular:
    return either((literal("0"), cat(_NOT_ZERO, times(_DIGIT, 0, num_digits - 1))))


def integers(low: Bound | None, high: Bound | None, factors: tuple[Decimal, ...]) -> Regular:
    """The integers of a range that are multiples of all `factors`."""
    least = Bound(Decimal(_from(low)), is_exclusive=False) if low else None
    most = Bound(Decimal(_to(high)), is_exclusive=False) if high else None
    # An integer is a multiple of 5/2 where it is one of 5.
    factors = tuple(Decimal(Fraction(factor).numerator) for factor in factors)
    return _between(least, most, factors, num_decimals=0)


def numbers(low: Bound | None, high: Bound | None, factors: tuple[Decimal, ...]) -> Regular:
    """The decimal numbers of a range that are multiples of all `factors`."""
    ends = [end.value for end in (low, high) if end is not None]
    # As many decimals as a float keeps apart from the bounds.
    num_whole = max((len(str(int(abs(end)))) for end in ends), default=1)
    own = max((_num_decimals(end) for end in ends), default=0)
    num_decimals = max(own, min(_MAX_DECIMALS, _NUM_DIGITS - 1 - num_whole))
    return _between(low, high, factors, num_decimals=num_decimals)


def _between(
    low: Bound | None, high: Bound | None, factors: tuple[Decimal, ...], *, num_decimals: int
) -> Regular:
    size = _size(num_decimals, factors, _num_digits(low, high, factors))
    demands = [either((size, cat(_MINUS, both(size, _above(_ZERO)))))]
    if low is not None:
        demands.append(_at_least(low))
    if high is not None:
        demands.append(_at_most(high))
    return both(*demands)


def _num_digits(low: Bound | None, high: Bound | None, factors: tuple[Decimal, ...]) -> int:
    ends = [end.value for end in (low, high) if end is not None]
    num_whole = max((len(str(int(abs(end)))) for end in (*ends, *factors)), default=1)
    return max(_NUM_DIGITS_OF_MULTIPLES, num_whole) if factors else _NUM_DIGITS


def _size(num_decimals: int, factors: tuple[Decimal, ...], num_digits: int) -> Regular:
    """Numerals without a sign."""
    decimals = cat(literal("."), times(_DIGIT, 1, num_decimals)) if num_decimals else NOTHING
    return both(
        cat(_natural(num_digits), times(decimals, 0, 1)),
        *(Multiple(_whole(factor), _num_decimals(factor)) for factor in factors),
    )


def _at_least(bound: Bound) -> Regular:
    if bound.value > 0 or (bound.value == 0 and bound.is_exclusive):
        return _above(bound)
    return either((_sizes(), cat(_MINUS, _below(_mirrored(bound)))))


def _at_most(bound: Bound) -> Regular:
    if bound.value < 0 or (bound.value == 0 and bound.is_exclusive):
        return cat(_MINUS, _above(_mirrored(bound)))
    return either((cat(_MINUS, _sizes()), _below(bound)))


def _mirrored(bound: Bound) -> Bound:
    return Bound(-bound.value, bound.is_exclusive)


def _sizes() -> Regular:
    return cat(_natural(), times(cat(literal("."), times(_DIGIT, 1)), 0, 1))


def _below(bound: Bound) -> Regular:
    """Sizes up to a bound that is not negative: those that are not above it."""
    return both(_sizes(), but_not(_above(Bound(bound.value, not bound.is_exclusive))))


def _above(bound: Bound) -> Regular:
    """Sizes from a bound that is not negative."""
    whole = int(bound.value)
    decimals = _decimals(bound.value)
    tail = times(cat(literal("."), times(_DIGIT, 1)), 0, 1)
    more = cat(_natural_from(whole + 1), tail)
    if decimals or bound.is_exclusive:
        same = cat(literal(f"{whole}."), _decimals_from(decimals, bound.is_exclusive))
    else:
        same = cat(literal(str(whole)), tail)
    return either((more, same))


def _natural_from(number: int) -> Regular:
    if number >= END:
        return NOTHING
    digits = str(number)
    longer = cat(_NOT_ZERO, times(_DIGIT, len(digits), _NUM_DIGITS - 1))
    greater = [
        cat(
            literal(digits[:at]),
            _greater(digits[at]),
            times(_DIGIT, len(digits) - at - 1, len(digits) - at - 1),
        )
        for at in range(len(digits))
    ]
    is_longest = len(digits) == _NUM_DIGITS
    return either((literal(digits), *greater, NOTHING if is_longest else longer))


def _decimals_from(digits: str, is_exclusive: bool) -> Regular:  # noqa: FBT001
    """What may stand after the point of a number whose whole part is the bound's."""
    greater = [
        cat(literal(digits[:at]), _greater(digits[at]), _ANY_DIGITS) for at in range(len(digits))
    ]
    more = cat(times(literal("0")), _NOT_ZERO, _ANY_DIGITS) if is_exclusive else _ANY_DIGITS
    return either((*greater, cat(literal(digits), more)))


def _greater(digit: str) -> Regular:
    return NOTHING if digit == "9" else Chars(((ord(digit) + 1, 57),))


def _from(bound: Bound) -> int:
    return floor(bound.value) + 1 if bound.is_exclusive else ceil(bound.value)


def _to(bound: Bound) -> int:
    return ceil(bound.value) - 1 if bound.is_exclusive else floor(bound.value)


def _decimals(value: Decimal) -> str:
    return f"{value:f}".partition(".")[2].rstrip("0")


def _num_decimals(value: Decimal) -> int:
    return len(_decimals(value))


def _whole(factor: Decimal) -> int:
    return int(factor.scaleb(_num_decimals(factor)))
