"""A key's requests slow other keys down only within the fair share of the engine."""

from pathlib import Path

import pytest

from tests.engine.in_process import Loop, a_loop, random_ids
from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import GrammarSpec

pytestmark = pytest.mark.live

GREEDY, NEIGHBOUR = (1, 1), (2, 2)


def test_hundreds_of_prompts_do_not_delay_another_key(pipeline: Pipeline, tmp_path: Path) -> None:
    with a_loop(pipeline, tmp_path, max_waiting=1000) as loop:
        for seed in range(300):
            loop.submit(random_ids(seed, 1900), max_new_tokens=1, lane=GREEDY)
        neighbour = loop.submit("hi", lane=NEIGHBOUR, max_new_tokens=1)

        loop.finish(neighbour)

        assert len(loop.ended) <= 4, "the prompts in the first step, and the neighbour's"


@pytest.mark.smoke
@table(
    "values",
    [
        {},
        {"sampling": Sampling(temperature=0.8, seed=3)},
        {"sampling": Sampling(frequency_penalty=0.4)},
        {"grammar": GrammarSpec("regex", "[0-9 ]{200}")},
    ],
)
def test_a_key_that_holds_all_slots_yields_one_and_loses_no_token(pipeline, tmp_path, values):
    with a_loop(pipeline, tmp_path, max_running=2) as loop:
        endless = [
            loop.submit(f"Count to {number}.", max_new_tokens=70, lane=GREEDY, **values)
            for number in (30, 40, 50, 60)
        ]
        loop.until(lambda: max(map(loop.num_generated, endless)) >= 10)

        loop.finish(*(loop.submit("hi", lane=NEIGHBOUR, max_new_tokens=3) for _ in range(2)))

        assert max(map(loop.num_generated, endless)) < 70, "no slot was free"
        assert {len(each.tokens) for each in loop.finish(*endless)} == {70}


def refused(loop: Loop) -> list[int]:
    """The ids that were refused, all of them for the full queue."""
    found = {id_: each.rejection for id_, each in loop.answers.items() if each.rejection}
    assert {each.code for each in found.values()} <= {"overloaded"}
    return list(found)


@pytest.mark.smoke
@table(
    "options, lanes, expected",
    [
        # A key that has filled its part of the queue is refused, and another is not.
        (
            {"max_running": 1, "max_waiting": 8, "max_waiting_per_key": 4},
            [1] * 2048 + [2] * 4,
            range(1 + 4, 2048),
        ),
        # Where the queue is full, the longest lane makes room.
        ({"max_running": 1, "max_waiting": 8}, [1, 1, 1, 1, 1, 2, 2, 2, 2, 3], [4]),
        # A key may have all slots.
        ({"max_running": 2, "max_waiting": 3}, [1] * 9, range(2 + 3, 9)),
        # By default a thousand wait.
        ({"max_running": 1}, [1] * 40, []),
    ],
)
def test_requests_beyond_the_queue_alone_are_refused(pipeline, tmp_path, options, lanes, expected):
    with a_loop(pipeline, tmp_path, **options) as loop:
        ids = [loop.submit("Count.", max_new_tokens=3, lane=(lane, lane)) for lane in lanes]
        assert refused(loop) == [ids[at] for at in expected]
        served = set(ids) - set(refused(loop))
        assert {len(each.tokens) for each in loop.finish(*served)} == {3}


def test_the_engine_reports_what_waits(pipeline: Pipeline, tmp_path: Path) -> None:
    with a_loop(pipeline, tmp_path, max_running=1) as loop:
        for lane in [GREEDY] * 6 + [NEIGHBOUR]:
            last = loop.submit("Count to 60.", max_new_tokens=20, lane=lane)

        loop.finish(last)
        loop.until(lambda: loop.loads[-1].num_answers == 0)

        assert loop.loads[0].num_answers == 7


def test_a_request_that_may_not_wait_long_is_refused_with_its_time_and_another_waits(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    with a_loop(pipeline, tmp_path, max_running=1) as loop:
        crowd = [loop.submit("Count.", max_new_tokens=30, lane=GREEDY) for _ in range(8)]
        loop.finish(*crowd[:3])  # the pace is known
        late = loop.submit("Count to 60.", lane=GREEDY, max_new_tokens=3, max_queue_s=0.001)
        neighbour = loop.submit("Count to 60.", lane=NEIGHBOUR, max_new_tokens=3, max_queue_s=60.0)

        assert loop.answers[late].rejection.code == "overloaded"
        assert loop.answers[late].rejection.retry_after_s >= 1
        assert loop.answers[neighbour].rejection is None
        loop.finish(*crowd, neighbour)


@table("is_strict, expected", [(False, 4), (True, 1)])
def test_a_key_alone_may_use_all_unless_shares_are_strict(pipeline, tmp_path, is_strict, expected):
    options = {"max_running": 4, "max_share": 0.25, "strict_share": is_strict}
    with a_loop(pipeline, tmp_path, **options) as loop:
        many = [loop.submit("Count to 60.", max_new_tokens=9, lane=GREEDY) for _ in range(6)]
        most = 0
        while len(loop.ended) < len(many):
            loop.turn()
            most = max(most, len(loop.kind._batch))
        assert most == expected


@pytest.mark.smoke
def test_the_lowest_priority_is_first_and_a_cancelled_one_frees_its_slot(pipeline, tmp_path):
    with a_loop(pipeline, tmp_path, max_running=1) as loop:
        running = loop.submit("Count to 60.", max_new_tokens=20)
        loop.turn()
        waiting = [loop.submit("hi", max_new_tokens=2, priority=each) for each in (7, 0, 7, 3, 0)]

        loop.finish(*waiting)

        assert loop.ended == [running, *(waiting[at] for at in (1, 4, 3, 0, 2))]

        endless = loop.submit("Count to 60.", max_new_tokens=2000)
        loop.until(lambda: loop.num_generated(endless) > 0)
        num_unused = loop.num_generated(endless)
        loop.cancel(endless, 0)
        assert len(loop.ask("hi", max_new_tokens=2).tokens) == 2
        stats = loop.kind.stats()
        assert (stats.num_running, stats.num_unused_tokens) == (0, num_unused)
        assert stats.tokens.num_output_tokens == 20 + 6 * 2
