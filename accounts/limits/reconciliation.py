"""When to look into the books again, to see how much of a quota was used.

A limiter that was told counts on by itself. But what ran when it was told is in no books yet:
requests from before the quota was set, or from before a store has lost its memory. They come
into the books when they end, so each quota is looked at again, soon at first and then less and
less often. That is always safe: floors only raise, and what is in the books was used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from accounts.limits.rules import Rule

# Rows of requests that have ended are in the database after a second or two.
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 600.0
_GROWTH: Final = 3.0


class _Next(NamedTuple):
    """The next look at a quota: when, by the clock, and how long after the one before."""

    at_s: float
    pause_s: float


class Looks:
    """Of all quotas, by the keys of their rules."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, _Next] = {}

    def due(self, quotas: Iterable[Rule]) -> list[Rule]:
        """Those that were never told, and those whose turn it is. Shadow rules are told once:
        they do not count what they would have refused, and the books do."""
        now_s, known = self._clock(), self._next
        return [
            rule
            for rule in quotas
            if (found := known.get(rule.key)) is None
            or (found.at_s <= now_s and not rule.is_shadow)
        ]

    def knows(self, rule: Rule) -> bool:
        """Whether it was told before."""
        return rule.key in self._next

    def told(self, rules: Iterable[Rule]) -> None:
        """The limiter has just heard of these what the books say."""
        now_s = self._clock()
        for rule in rules:
            before = self._next.get(rule.key)
            pause_s = FIRST_PAUSE_S
            if before is not None:
                pause_s = min(_GROWTH * before.pause_s, LONGEST_PAUSE_S)
            self._next[rule.key] = _Next(now_s + pause_s, pause_s)

    def hurry(self, rules: Iterable[Rule]) -> None:
        """Something has ended that these do not know: look soon."""
        at_s = self._clock() + FIRST_PAUSE_S
        for rule in rules:
            before = self._next.get(rule.key)
            if before is not None:
                self._next[rule.key] = _Next(min(before.at_s, at_s), FIRST_PAUSE_S)

    def keep(self, quotas: Iterable[Rule]) -> None:
        """Others are gone. One that comes back was not counted meanwhile, and is new."""
        for key in self._next.keys() - {rule.key for rule in quotas}:
            del self._next[key]

    def forget(self) -> None:
        """The limiter has lost its memory."""
        self._next.clear()
