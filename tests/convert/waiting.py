"""Waiting in an event loop for what another process does."""

import asyncio
from collections.abc import Callable

_DEADLINE_S = 60.0


async def until(is_so: Callable[[], bool]) -> None:
    """Fails when it does not become so in time."""
    async with asyncio.timeout(_DEADLINE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
