"""What is made of an object once, and found by the object itself: nothing is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

# Before all are forgotten.
_MAX_KNOWN: Final = 4096

Of = TypeVar("Of")
Made = TypeVar("Made")


class ByIdentity(Generic[Of, Made]):
    """For what never changes and comes again and again, as the rules of one caller do. They
    are kept alive meanwhile, so that no other object can have the identity of one of them."""

    def __init__(self, make: Callable[[Of], Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[Of, Made]] = {}

    def __call__(self, of: Of) -> Made:
        """What was made of this very object, or is now."""
        known = self._known.get(id(of))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[id(of)] = of, self._make(of)
        return known[1]
