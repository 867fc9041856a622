"""Pairs in place of a product: by day each first value meets some of the others, in turn. The whole
products are in the `nightly_*.py` of the rooms."""

import inspect
from collections.abc import Callable, Iterable
from itertools import cycle, product
from typing import Any

from tests.tables import table
from vinery_serving.grammars.families.registry import FAMILIES, by_name

# The families with calls, without reasoning, which changes nothing about calls.
CALLING = [
    name for name in sorted(FAMILIES) if "+" not in name and by_name(name).grammar.supports_calls
]


def rotated(firsts: Iterable[Any], *others: Iterable[Any], each: int = 1) -> list[tuple[Any, ...]]:
    """Rows with each of the first values, `each` times, and the combinations of the others one
    after the other."""
    turns = cycle(product(*others))
    return [(first, *next(turns)) for first in firsts for _ in range(each)]


def whole(
    names: str, axes: Iterable[Iterable[Any]], *tests: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """These tests of some rows, by their names, with all rows."""
    rows = [row if len(row) > 1 else row[0] for row in product(*axes)]
    return {test.__name__: table(names, rows)(inspect.unwrap(test)) for test in tests}
