"""The order between lanes, and within a lane, by any sequence of arrivals and admissions."""

from collections import Counter
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.engine.fair_queue import FairQueue, Lane, num_before, yielding_lane

ALICE, ALAN, BOB = (1, 1), (1, 2), (2, 3)  # Alice and Alan are of one organisation
LANES = st.sampled_from([ALICE, ALAN, BOB, (3, 4)])


class Item(NamedTuple):
    """Something that waits, with a name of its own."""

    name: object
    cost: float = 1.0


def new_queue() -> FairQueue[Item]:
    return FairQueue(lambda item: item.cost)


def add(queue: FairQueue[Item], num: int, lane: Lane, cost: float = 1.0, priority: int = 0) -> None:
    for number in range(num):
        queue.add(Item((lane, number), cost), lane, priority)


def filled(*parts: tuple[Any, ...]) -> FairQueue[Item]:
    """A queue with items of each part: how many, their lane, and what `add` takes, too."""
    queue = new_queue()
    for part in parts:
        add(queue, *part)
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


def lanes_of(queue: FairQueue[Item], num: int) -> Counter[Lane]:
    """Count the next items by lane."""
    return Counter(lane for lane, _ in taken(queue, num))


def test_keys_and_organisations_take_turns_by_tokens_whatever_their_priority() -> None:
    served = lanes_of(filled((10, ALICE, 1000.0), (100, BOB, 100.0)), 55)
    assert served[ALICE] in (5, 6)
    assert served[BOB] in (49, 50)

    queue = filled((20, ALICE), (20, ALAN), (20, BOB))
    assert lanes_of(queue, 20) == {ALICE: 5, ALAN: 5, BOB: 10}

    queue = filled((10, ALICE, 1.0, 0), (10, BOB, 1.0, 100))
    assert lanes_of(queue, 10) == {ALICE: 5, BOB: 5}


def test_a_key_with_one_prompt_comes_before_hundreds_and_an_idle_one_saves_up_no_turns() -> None:
    queue = filled((570, ALICE, 1900.0))
    taken(queue, 10)
    queue.add(Item("neighbour", 30.0), BOB)
    assert queue.pop().name == "neighbour"

    queue = filled((100, ALICE))
    taken(queue, 50)
    add(queue, 50, BOB)
    assert lanes_of(queue, 20)[BOB] in (9, 10, 11)


def test_the_queue_reports_what_waits_and_which_item_yields() -> None:
    queue = filled((3, ALICE, 10.0))
    queue.add(Item("one", 5.0), BOB)
    queue.discard(Item((ALICE, 2), 10.0))
    assert queue.nums() == {ALICE: 2, BOB: 1}

    queue = filled((5, ALICE), (1, BOB))
    assert queue.last_to_yield((3, 4)).name == (ALICE, 4)
    assert queue.last_to_yield(ALICE) is None


@given(st.dictionaries(LANES, st.integers(1, 9)), LANES)
def test_the_number_of_items_before_a_new_one_is_that_of_the_turns(
    waiting: dict[Lane, int], lane: Lane
) -> None:
    queue = filled(*((num, each) for each, num in waiting.items()))
    queue.add(Item("new"), lane)
    names = taken(queue, len(queue))
    # The last turns of other lanes and organisations may come after that of the new item.
    assert names.index("new") <= num_before(lane, Counter(waiting)) <= names.index("new") + 6


def test_a_key_pays_later_for_what_cost_more_than_expected() -> None:
    queue = filled((20, ALICE), (2, BOB))
    taken(queue, 2)
    queue.charge(ALICE, 10.0)
    queue.charge((7, 7), 1.0)  # a lane that never waited
    assert taken(queue, 1) == [(BOB, 1)]


def test_idle_lanes_are_forgotten() -> None:
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


def test_a_lane_above_the_share_yields_to_a_lane_below_it_and_none_to_a_lane_at_it() -> None:
    holders = Counter({ALICE: 5, BOB: 3, (2, 4): 3, (2, 5): 3})
    assert yielding_lane(BOB, holders, share=4) == ALICE, "although organisation 2 holds more"
    assert yielding_lane((3, 6), holders, share=4) == ALICE
    assert yielding_lane(ALICE, holders, share=4) is None
    assert yielding_lane(BOB, holders) is None
    assert yielding_lane(BOB, Counter({ALICE: 4, BOB: 4}), share=4) is None


def test_an_item_that_waits_is_passed_by_others_and_stays_the_first() -> None:
    queue = filled((2, ALICE))
    assert queue.first_except({ALICE}) is None
    add(queue, 1, BOB)

    first = queue.first_except({ALICE})

    assert first is queue.pop_except({ALICE})
    assert first.name == (BOB, 0)

    queue = filled((3, ALICE))
    first = queue.first_except(set())
    assert first is not None

    passing = queue.first_except(set(), lambda item: item is first)

    assert passing is not None
    assert passing is not first
    queue.take(passing)
    assert queue.first_except(set()) is first
    assert len(queue) == 2
    assert queue.first_except(set(), lambda _: True) is None
