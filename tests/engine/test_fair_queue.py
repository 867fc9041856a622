"""The order between lanes, and within a lane, by any sequence of arrivals and admissions."""

from collections import Counter
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.engine.fair_queue import FairQueue, Lane, yielding_lane

ALICE, ALAN, BOB = (1, 1), (1, 2), (2, 3)  # Alice and Alan are of one organisation
LANES = st.sampled_from([ALICE, ALAN, BOB, (3, 4)])


class Item(NamedTuple):
    """Something that waits, with a name of its own."""

    name: object
    cost: float = 1.0


def new_queue() -> FairQueue[Item]:
    return FairQueue(lambda item: item.cost)


def filled(num: int, lane: Lane, cost: float = 1.0) -> FairQueue[Item]:
    queue = new_queue()
    for number in range(num):
        queue.add(Item((lane, number), cost), lane)
    return queue


def taken(queue: FairQueue[Item], num: int) -> list[Any]:
    return [queue.pop().name for _ in range(num)]


@given(
    st.lists(
        st.integers(0, 3)
        | st.just("pop")
        | st.tuples(st.just("cancel"), st.integers(0))
        | st.tuples(st.just("back"), st.integers(0, 3))
    )
)
def test_of_one_lane_the_lowest_priority_and_then_the_oldest_is_first(steps: list[Any]) -> None:
    queue = new_queue()
    expected: list[tuple[int, Item]] = []  # the latter in order of admission among equals
    for number, step in enumerate(steps):
        item = Item(number)
        match step:
            case "pop" if expected:
                first = min(expected, key=lambda each: each[0])
                assert queue.pop() is first[1]
                expected.remove(first)
            case "cancel", index if expected:
                _, cancelled = expected.pop(index % len(expected))
                queue.discard(cancelled)
                queue.discard(cancelled)  # does nothing
            case "back", priority:
                expected.insert(0, (priority, item))
                queue.put_back(item, ALICE, priority)
            case int():
                expected.append((step, item))
                queue.add(item, ALICE, step)
        assert (len(queue), bool(queue)) == (len(expected), bool(expected))
        assert queue.num_of(ALICE) == len(expected)


def test_keys_and_organisations_take_turns_by_tokens_whatever_their_priority_and_save_up_none():
    queue = filled(10, ALICE, 1000.0)
    for number in range(100):
        queue.add(Item(number, 100.0), BOB)

    served = Counter("long" if isinstance(name, tuple) else "short" for name in taken(queue, 55))

    assert served["long"] in (5, 6)
    assert served["short"] in (49, 50)

    queue = filled(570, ALICE, 1900.0)
    taken(queue, 10)
    queue.add(Item("neighbour", 30.0), BOB)
    assert queue.pop().name == "neighbour"

    queue = new_queue()
    for lane in (ALICE, ALAN, BOB):
        for _ in range(20):
            queue.add(Item((lane, len(queue))), lane)

    served = Counter(lane for lane, _ in taken(queue, 20))

    assert served == {ALICE: 5, ALAN: 5, BOB: 10}

    queue = new_queue()
    for number in range(10):
        queue.add(Item((ALICE, number)), ALICE, priority=0)
        queue.add(Item((BOB, number)), BOB, priority=100)
    assert Counter(lane for lane, _ in taken(queue, 10)) == {ALICE: 5, BOB: 5}

    queue = filled(100, ALICE)
    taken(queue, 50)
    for number in range(50):
        queue.add(Item((BOB, number)), BOB)
    assert Counter(lane for lane, _ in taken(queue, 20))[BOB] in (9, 10, 11)


def test_the_queue_reports_what_waits_and_a_key_pays_later_for_what_cost_more() -> None:
    queue = filled(3, ALICE, 10.0)
    queue.add(Item("one", 5.0), BOB)
    queue.discard(Item((ALICE, 2), 10.0))
    assert queue.costs() == {ALICE: 20.0, BOB: 5.0}

    queue = filled(5, ALICE)
    queue.add(Item("one"), BOB)

    yielding = queue.last_to_yield((3, 4))

    assert yielding.name == (ALICE, 4)
    assert queue.last_to_yield(ALICE) is None

    queue = filled(20, ALICE)
    queue.add(Item("first"), BOB)
    queue.add(Item("second"), BOB)
    taken(queue, 2)
    queue.charge(ALICE, 10.0)
    queue.charge((7, 7), 1.0)  # a lane that never waited

    assert taken(queue, 1) == ["second"]

    queue = new_queue()
    for number in range(1500):
        queue.add(Item(number), (number, number))
        queue.pop()
    assert len(queue._organizations) <= 1024


@given(st.dictionaries(LANES, st.integers(1, 9)), LANES)
def test_a_lane_yields_only_to_one_that_holds_less(holders: dict[Lane, int], lane: Lane) -> None:
    yielding = yielding_lane(lane, Counter(holders))
    if yielding is None:
        return
    after = Counter(holders)
    after[yielding] -= 1
    after[lane] += 1

    assert yielding != lane
    assert yielding_lane(yielding, after) != lane


@given(st.dictionaries(LANES, st.integers(1, 9)))
def test_slots_are_even_when_no_lane_has_to_yield(holders: dict[Lane, int]) -> None:
    """A lane that waits gets slots until its organisation holds as many as the others."""
    held = Counter(holders)
    for _ in range(100):
        yielding = yielding_lane(BOB, held)
        if yielding is None:
            break
        held[yielding] -= 1
        held[BOB] += 1
    of_bob = held[BOB]
    for organization in (1, 3):
        total = sum(num for lane, num in held.items() if lane[0] == organization)
        assert total <= of_bob + 1


def test_lanes_above_their_share_yield_and_one_that_waits_is_passed_by_its_lane() -> None:
    holders = Counter({ALICE: 5, BOB: 3, (2, 4): 3, (2, 5): 3})
    assert yielding_lane(BOB, holders, share=4) == ALICE, "although organisation 2 holds more"
    assert yielding_lane((3, 6), holders, share=4) == ALICE
    assert yielding_lane(ALICE, holders, share=4) is None
    assert yielding_lane(BOB, holders) is None
    assert yielding_lane(BOB, Counter({ALICE: 4, BOB: 4}), share=4) is None

    queue = filled(2, ALICE)
    assert queue.first_except({ALICE}) is None
    queue.add(Item("bob"), BOB)

    first = queue.first_except({ALICE})

    assert first is queue.pop_except({ALICE})
    assert first.name == "bob"

    queue = filled(3, ALICE)
    first = queue.first_except(set())
    assert first is not None

    passing = queue.first_except(set(), lambda item: item is first)

    assert passing is not None
    assert passing is not first
    queue.take(passing)
    assert queue.first_except(set()) is first
    assert len(queue) == 2
    assert queue.first_except(set(), lambda _: True) is None
