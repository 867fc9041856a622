"""Futures of requests that wait, in turns of their clients."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable


class ClientQueues:
    """The next turn goes to the client that has waited longest since its last one.

    Belongs to the event loop. Its users bound its length.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        # In the order in which the clients have their next turns.
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def num_of(self, client: Hashable) -> int:
        """Return how many requests of the client wait."""
        return len(self._queues.get(client, ()))

    def add(self, client: Hashable) -> asyncio.Future[None]:
        """Return a future that is done when the request has its turn. Call `leave` if the request
        no longer waits for it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(turn)
        self.num_waiting += 1
        return turn

    def grant(self) -> bool:
        """Give the next turn. Return False if no request waits."""
        while self._queues:
            client, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            self.num_waiting -= 1
            if queue:
                self._queues[client] = queue
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def leave(self, client: Hashable, turn: asyncio.Future[None]) -> bool:
        """Remove a turn from the queue. Return False if it has been granted already."""
        queue = self._queues.get(client)
        if queue is None or turn not in queue:
            return turn.cancelled()
        queue.remove(turn)
        self.num_waiting -= 1
        if not queue:
            del self._queues[client]
        return True
