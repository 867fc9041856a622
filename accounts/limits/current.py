"""How full limits are, for pages: asked of the limiter of this process, if it has one.

A limiter lives in the event loop of a web process, and pages in threads beside it. The process
that makes a limiter says so here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from asgiref.sync import async_to_sync

from accounts.limits.leases import Level
from accounts.limits.limiter import LimitsAway
from accounts.limits.rules import Rule

ReadLevels = Callable[[Sequence[Rule]], Awaitable[Sequence[Level]]]

_read: list[ReadLevels] = []


def read_levels_with(read: ReadLevels | None) -> None:
    """From now on levels are read with this, usually `Limiter.levels`; with None they are not
    known."""
    _read[:] = [] if read is None else [read]


def current_levels(rules: Sequence[Rule]) -> Sequence[Level] | None:
    """In the order of the rules; None while nobody knows. For threads that Django has made
    beside the event loop."""
    if not _read:
        return None

    async def levels() -> Sequence[Level]:
        return await _read[0](rules)

    try:
        return async_to_sync(levels)()
    except LimitsAway:
        return None
