"""Begins a few requests in each pass of the event loop, in turns of their clients.

The loop runs everything that is ready before it looks for new events. A thousand requests that come
at once would be begun in one pass, and each other client would wait for all of them.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from vinery_serving.core.turns import FairTurns
from vinery_serving.gateway.endpoints.edge import App, Receive, Scope, Send

# The first step of a request takes up to a millisecond.
_MOST_IN_A_PASS: Final = 16


class BeginInTurns:
    """An ASGI middleware. Belongs to the event loop."""

    def __init__(
        self, app: App, client_of: Callable[[Scope], Hashable], most: int = _MOST_IN_A_PASS
    ) -> None:
        """`client_of` finds whose turn a request takes. It is asked only if there is a queue."""
        self._app = app
        self._client_of = client_of
        # Those of this pass. No more wait than there are connections.
        self._turns = FairTurns(most, max_each=most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_first = not self._turns.num_running
        if not self._turns.begin_now(None):
            await self._turns.begin(self._client_of(scope))
        elif is_first:
            asyncio.get_running_loop().call_soon(self._begin_pass)
        await self._app(scope, receive, send)

    def _begin_pass(self) -> None:
        self._turns.end_all()
        if self._turns.num_running:
            asyncio.get_running_loop().call_soon(self._begin_pass)
