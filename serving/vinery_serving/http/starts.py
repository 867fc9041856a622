"""Begins a few requests in each pass of the event loop, in turns of their clients.

The loop runs everything that is ready before it looks for new events. A thousand requests that come
at once would be begun in one pass, and each other client would wait for all of them.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from vinery_serving.http.client_queues import ClientQueues
from vinery_serving.http.edge import App, Receive, Scope, Send

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
        self._most = most
        self._num_begun = 0  # in this pass
        self._queues = ClientQueues()  # no longer than there are connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._num_begun < self._most and not self._queues.num_waiting:
            self._begin_one()
        else:
            await self._queues.add(self._client_of(scope))
        await self._app(scope, receive, send)

    def _begin_one(self) -> None:
        if not self._num_begun:
            asyncio.get_running_loop().call_soon(self._begin_pass)
        self._num_begun += 1

    def _begin_pass(self) -> None:
        self._num_begun = 0
        while self._num_begun < self._most and self._queues.grant():
            self._begin_one()
