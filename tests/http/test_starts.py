"""How many requests begin in one pass of the event loop, and whose."""

import asyncio
from collections import Counter

from vinery_serving.gateway.endpoints.edge import BeginInTurns, Message, Receive, Scope, Send


async def receive() -> Message:
    return {}


async def send(message: Message) -> None:
    pass


class Begun:
    """An application that notes which request begins in which pass."""

    def __init__(self) -> None:
        self.app = BeginInTurns(self, lambda scope: scope["client"], most=4)
        self.clients: list[str] = []
        self.num_passes = 0
        self.by_pass: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.clients.append(scope["client"])
        self.by_pass[self.num_passes] += 1

    async def count_passes(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.num_passes += 1


async def test_no_pass_begins_more_than_a_few_requests() -> None:
    begun = Begun()
    counting = asyncio.create_task(begun.count_passes())

    await asyncio.gather(*(begun.app({"client": "a"}, receive, send) for _ in range(50)))

    counting.cancel()
    assert len(begun.clients) == 50
    assert max(begun.by_pass.values()) <= 4


async def test_another_client_has_its_turn_in_the_next_pass() -> None:
    begun = Begun()

    clients = ["a"] * 50 + ["b"]
    await asyncio.gather(*(begun.app({"client": each}, receive, send) for each in clients))

    assert "b" in begun.clients[:6]


async def test_requests_of_one_client_begin_in_order() -> None:
    order: list[int] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        order.append(scope["number"])

    app = BeginInTurns(note, lambda scope: "a", most=4)

    await asyncio.gather(*(app({"number": each}, receive, send) for each in range(30)))

    assert order == list(range(30))


async def test_a_client_that_leaves_takes_no_turn() -> None:
    begun = Begun()
    coroutines = [begun.app({"client": each}, receive, send) for each in "a" * 30 + "b"]
    tasks = list(map(asyncio.create_task, coroutines))
    await asyncio.sleep(0)
    for task in tasks[4:30]:
        task.cancel()
    await asyncio.wait(tasks)

    assert begun.clients == ["a"] * 4 + ["b"]
