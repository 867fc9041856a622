"""How full limits are and whether their store is there, for pages: asked of the limiter of this
process, if it has one.

A limiter lives in the event loop of a web process, and pages in threads beside it. The process
that makes a limiter says so here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from asgiref.sync import async_to_sync

from accounts.limits.failover import StoreState
from accounts.limits.leases import Level
from accounts.limits.limiter import LimitsAway
from accounts.limits.rules import Rule

ReadLevels = Callable[[Sequence[Rule]], Awaitable[Sequence[Level]]]
ReadState = Callable[[], StoreState | None]

_read: list[ReadLevels] = []
_read_state: list[ReadState] = []


def read_levels_with(read: ReadLevels | None) -> None:
    """From now on levels are read with this, usually `Limiter.levels`; with None they are not
    known."""
    _read[:] = [] if read is None else [read]


def read_state_with(read: ReadState | None) -> None:
    """From now on the state of the store is read with this, `GuardedLimiter.state` for one."""
    _read_state[:] = [] if read is None else [read]


def current_state() -> StoreState | None:
    """How it stands with the store, as far as this process knows; None: there is none."""
    return _read_state[0]() if _read_state else None


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
