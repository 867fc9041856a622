"""Keys have turns: a key that asks for much does not hold up another."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.errors import LimitReached, Overloaded
from vinery_serving.core.turns import FairTurns, TurnMessages

MESSAGES = TurnMessages("It waited too long.", "Too many wait.", "{num} of this key wait already.")


class Work:
    """Work of keys that ends when the test ends it."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self.started: list[str] = []
        self._ends: dict[str, list[asyncio.Event]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, *keys: str) -> None:
        for key in keys:
            self.tasks.append(asyncio.create_task(self._run(key)))
            await settle()

    async def end(self, key: str) -> None:
        self._ends[key].pop(0).set()
        await settle()

    async def end_all(self) -> None:
        while any(self._ends.values()):
            for key in list(self._ends):
                while self._ends[key]:
                    await self.end(key)

    async def _run(self, key: str) -> None:
        async with self._turns.turn(key):
            self.started.append(key)
            end = asyncio.Event()
            self._ends.setdefault(key, []).append(end)
            await end.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def turns_of(num_slots: int, max_waiting: int = 100, wait_s: float = 60, **most: int) -> FairTurns:
    return FairTurns(num_slots, max_waiting=max_waiting, wait_s=wait_s, refuse=MESSAGES, **most)


@table(
    "turns, begun, started, in_the_end",
    [
        # A key never has all slots.
        (turns_of(3), "aaaa", "aa", "aaaa"),
        (turns_of(3), "aaaab", "aab", "aabaa"),
        # A single slot is for every key, and keys that wait go in turn.
        (turns_of(1), "ab", "a", "ab"),
        (turns_of(1), "aaaabbc", "a", "abcabaa"),
        (turns_of(1), "daaabcb", "d", "dabcaba"),
        # A key has no more slots than each may have.
        (turns_of(8, max_each=2), "aaab", "aab", "aaba"),
    ],
)
async def test_keys_have_turns(turns: FairTurns, begun: str, started: str, in_the_end: str) -> None:
    work = Work(turns)

    await work.begin(*begun)
    assert work.started == list(started)
    await work.end_all()
    assert work.started == list(in_the_end)


async def test_a_key_with_a_slot_waits_for_one_without() -> None:
    work = Work(turns_of(3))
    await work.begin("a", "a", "b", "a", "c")

    await work.end("b")

    assert work.started == ["a", "a", "b", "c"]
    await work.end_all()


async def test_the_queue_of_a_key_is_bounded_and_others_may_still_wait() -> None:
    turns = turns_of(1, max_waiting=2)
    work = Work(turns)
    await work.begin("a", "a", "a")

    with pytest.raises(LimitReached) as caught:
        async with turns.turn("a"):
            raise AssertionError
    assert caught.value.headers["Retry-After"]

    await work.begin("b")
    assert turns.num_waiting == 3
    await work.end_all()


async def test_the_queue_of_all_keys_is_bounded() -> None:
    turns = turns_of(1, max_waiting=1)
    work = Work(turns)
    await work.begin("a", "b", "c", "d", "e")

    with pytest.raises(Overloaded):
        async with turns.turn("f"):
            raise AssertionError
    await work.end_all()


async def test_a_wait_has_a_deadline() -> None:
    turns = turns_of(1, wait_s=0.01)
    async with turns.turn("a"):
        with pytest.raises(Overloaded, match="waited too long"):
            async with turns.turn("b"):
                raise AssertionError
    assert (turns.num_running, turns.num_waiting) == (0, 0)


async def test_a_client_that_leaves_while_its_turn_comes_gives_it_on() -> None:
    turns = turns_of(1)
    work = Work(turns)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(turns.turn("a"))
        await work.begin("b", "c")
    work.tasks[0].cancel()  # its turn has come, but it has not run
    await settle()

    assert work.started == ["c"]
    await work.end_all()
    assert turns.num_running == 0


async def test_a_pass_ends_all_turns_and_begins_the_next_ones() -> None:
    turns = turns_of(2, max_each=2)
    assert [turns.begin_now(key) for key in "aab"] == [True, True, False]
    tasks = [asyncio.create_task(turns.begin(key)) for key in "bbc"]
    await settle()
    tasks[0].cancel()

    turns.end_all()
    await settle()
    assert [task.done() for task in tasks] == [True, True, True]
    turns.end_all()
    turns.end("c")
    assert (turns.num_running, turns.num_waiting, turns._lanes) == (0, 0, {})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["begin", "end", "leave"]))))
def test_slots_are_never_lost(steps: list[tuple[str, str]]) -> None:
    async def run() -> None:
        turns = turns_of(2)
        work = Work(turns)
        for key, step in steps:
            if step == "begin":
                await work.begin(key)
            elif step == "end" and work._ends.get(key):
                await work.end(key)
            elif step == "leave" and work.tasks:
                work.tasks.pop().cancel()
                await settle()
            assert turns.num_running <= 2
        for task in work.tasks:
            task.cancel()
        await settle()
        assert (turns.num_running, turns.num_waiting) == (0, 0)
        assert not turns._lanes
        assert not any(turns._by_slots)

    asyncio.run(run())
