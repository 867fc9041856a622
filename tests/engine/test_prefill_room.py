"""How many prompts are added for a step, by what the prefix cache had of earlier ones."""

from __future__ import annotations

import pytest

from tests.engine.in_process import generation_of, random_ids, run
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import Generation

pytestmark = pytest.mark.live

GREEDY, NEIGHBOUR = (1, 1), (2, 2)
STEP_TOKENS = 256
# At least this part of any prompt is expected to be computed.
LEAST_UNCACHED = 1 / 8


def generation(seed: int, num: int, lane: Lane) -> Generation:
    return generation_of(lane, random_ids(seed, num), max_new_tokens=1)


def num_added(batch: Batch, generations: list[Generation]) -> int:
    """Add what the next step has room for, and return how many that are."""
    waiting = generations.copy()
    while waiting and batch.has_prefill_room:
        assert batch.add(waiting.pop(0)) is None
    return len(generations) - len(waiting)


def test_prompts_of_a_key_that_repeats_one_do_not_make_those_of_another_seem_cached(
    batch: Batch,
) -> None:
    for _ in range(30):
        run(batch, generation(1, 64, NEIGHBOUR))

    assert num_added(batch, [generation(seed, 1900, GREEDY) for seed in range(2, 9)]) == 1


def test_many_prompts_of_a_key_that_repeats_one_are_added_for_a_step(batch: Batch) -> None:
    for _ in range(30):
        run(batch, generation(1, 64, NEIGHBOUR))

    num = STEP_TOKENS / (64 * LEAST_UNCACHED)
    assert num_added(batch, [generation(1, 64, NEIGHBOUR) for _ in range(64)]) == num
