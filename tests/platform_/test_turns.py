"""Turns of requests: few run, a bounded number waits, and no client holds others up."""

import asyncio

import pytest

from vinery.web.turns import Turns
from vinery_serving.core.errors import Overloaded


def new_turns(*, max_running: int = 1, max_waiting: int = 4, max_wait_s: float = 60.0) -> Turns:
    return Turns(max_running=max_running, max_waiting=max_waiting, max_wait_s=max_wait_s)


async def begin_all(turns: Turns, *clients: str) -> list[asyncio.Task[None]]:
    """One task for each request. Those that can begin have begun."""
    tasks = [asyncio.create_task(turns.begin(client)) for client in clients]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_only_so_many_run() -> None:
    turns = new_turns(max_running=2)
    tasks = await begin_all(turns, "a", "b", "c")

    assert [task.done() for task in tasks] == [True, True, False]
    turns.end()
    await tasks[2]
    turns.end()
    turns.end()
    assert (turns.num_running, turns.num_waiting) == (0, 0)


async def test_clients_take_turns() -> None:
    turns = new_turns(max_waiting=8)
    await turns.begin("first")
    order: list[str] = []

    async def run(client: str) -> None:
        await turns.begin(client)
        order.append(client)
        turns.end()

    waiting = [asyncio.create_task(run(client)) for client in ("a", "a", "a", "b", "c", "b")]
    await asyncio.sleep(0)
    turns.end()
    await asyncio.gather(*waiting)

    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_a_full_queue_refuses_with_retry_after() -> None:
    turns = new_turns(max_waiting=2)
    await begin_all(turns, "a", "b", "c")

    with pytest.raises(Overloaded) as refused:
        await turns.begin("d")
    assert refused.value.retry_after_s


async def test_one_client_leaves_room_for_others() -> None:
    turns = new_turns(max_waiting=4)
    tasks = await begin_all(turns, "a", "a", "a", "a", "b")

    assert isinstance(tasks[3].exception(), Overloaded)
    assert not tasks[4].done()
    assert turns.num_waiting == 3


async def test_a_wait_has_a_deadline() -> None:
    turns = new_turns(max_wait_s=0.01)
    await turns.begin("a")

    with pytest.raises(Overloaded):
        await turns.begin("b")
    assert turns.num_waiting == 0
    turns.end()
    assert turns.num_running == 0


@pytest.mark.parametrize("has_its_turn", [False, True])
async def test_a_client_that_leaves_loses_no_turn(has_its_turn: bool) -> None:
    turns = new_turns()
    await turns.begin("a")
    leaving, staying = await begin_all(turns, "b", "c")
    if has_its_turn:
        turns.end()  # of `a`; the task of `b` has not continued
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    if not has_its_turn:
        turns.end()

    await staying
    turns.end()
    assert (turns.num_running, turns.num_waiting) == (0, 0)
