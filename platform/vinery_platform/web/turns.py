"""How many requests of one kind run at once, and in which order others wait."""

import asyncio

from vinery_serving.core.errors import Overloaded
from vinery_serving.http.client_queues import ClientQueues
from vinery_serving.http.refusals import REFUSALS, Reason


class Turns:
    """A number of requests run; a bounded number waits, in turn by client. Belongs to the event
    loop.

    One client can use half of the queue, so that others find room in it.
    """

    def __init__(self, *, max_running: int, max_waiting: int, max_wait_s: float) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._max_of_client = max(max_waiting // 2, 1)
        self._max_wait_s = max_wait_s
        self._queues = ClientQueues()
        self.num_running = 0

    @property
    def num_waiting(self) -> int:
        return self._queues.num_waiting

    def begin_now(self) -> bool:
        """Begin a turn, which `end` ends, if there is one."""
        if self.num_running >= self._max_running:
            return False
        self.num_running += 1
        return True

    async def begin(self, client: str) -> None:
        """Wait for a turn, which `end` ends. Raises `Overloaded`."""
        if self.begin_now():
            return
        num_of_client = self._queues.num_of(client)
        if self.num_waiting >= self._max_waiting or num_of_client >= self._max_of_client:
            raise _overloaded()
        turn = self._queues.add(client)
        try:
            async with asyncio.timeout(self._max_wait_s):
                await turn
        except BaseException as error:  # also the cancellation of a request whose client left
            if not self._queues.leave(client, turn):
                self.end()  # the turn came meanwhile, and goes to another request
            if isinstance(error, TimeoutError):
                raise _overloaded() from None
            raise

    def end(self) -> None:
        """Give the turn to the next request."""
        if not self._queues.grant():
            self.num_running -= 1


def _overloaded() -> Overloaded:
    REFUSALS.count(Reason.PAGES)
    return Overloaded("Too many pages are being requested. Try again in a moment.")
