"""Some generations that are waited for together: the choices of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from serving.transport.messages import Accepted, Grant, Rejected, TokenOutput


class EngineDisconnected(Exception):
    """The connection to the engine broke, or there is none."""


# What the engine says of one generation; its `id` says of which.
Said = Accepted | TokenOutput | Rejected


class Run:
    """Some generations that one reader waits for together: the choices of a request.

    The inbox is bounded by what the engine may say: at most `max_new_tokens` outputs for
    each member.
    """

    def __init__(
        self,
        members: Sequence[int],
        forget: Callable[[int, int], None],
        send: Callable[[Grant], None],
    ) -> None:
        """`forget` tells the engine that a member is not wanted any more, and how many of its
        tokens were used; `send` how many it may make."""
        self._forget = forget
        self._send = send
        self._open = set(members)
        self._inbox: list[Said] = []
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0  # of the loop's clock
        self._is_lost = False

    async def next(self, timeout_s: float | None = None) -> list[Said]:
        """All that has arrived since the last call, waiting for the first.

        Returns nothing when `timeout_s` passes in silence. Raises `EngineDisconnected`.
        """
        if not self._inbox and not self._is_lost:
            await self._wait(timeout_s)
        if self._inbox:
            said, self._inbox = self._inbox, []
            return said
        if self._is_lost:
            raise EngineDisconnected
        return []

    def cancel(self, num_used: Mapping[int, int]) -> None:
        """Free the engine's slots of these members, of each of which so many tokens were used.
        One that has ended meanwhile may have made more than that."""
        for id_, num_tokens in num_used.items():
            self._open.discard(id_)
            if not self._is_lost:
                self._forget(id_, num_tokens)
        if not self._open and self._timer is not None:
            self._timer.cancel()

    def grant(self, member: int, num_tokens: int, *, is_last: bool) -> None:
        """Let a member make so many tokens in all, and pause there; or end, as if by its
        limit."""
        if member in self._open:
            self._send(Grant(member, num_tokens, is_last))

    def put(self, said: Said) -> None:
        """Called by the connection."""
        self._inbox.append(said)
        self._wake()

    def end(self, said: Said) -> None:
        """Called by the connection for a member's last word."""
        self._open.discard(said.id)
        self.put(said)

    def lose(self) -> None:
        """Called by the connection when it breaks."""
        self._open.clear()
        self._is_lost = True
        self._wake()

    async def _wait(self, timeout_s: float | None) -> None:
        self._waiter = self._loop.create_future()
        if timeout_s is not None:
            self._wake_at = self._loop.time() + timeout_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._wake_at, self._time_out)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _time_out(self) -> None:
        """One timer serves all waits of a run: setting one for each token would cost more
        than decoding it."""
        if self._loop.time() < self._wake_at:
            self._timer = self._loop.call_at(self._wake_at, self._time_out)
            return
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
