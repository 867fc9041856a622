"""How the batch recovers from failed steps, with the failures of the real engine."""

from typing import Any

import pytest

from tests.engine import in_process
from tests.engine.in_process import BAD_GRAMMAR, run, tokens_of
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation

pytestmark = pytest.mark.live


def generation(text: str, **values: Any) -> Generation:
    return in_process.generation(text, **{"max_new_tokens": 60, **values})


@pytest.mark.smoke
def test_new_generations_beside_guilty_ones_are_innocent_and_others_follow(batch: Batch) -> None:
    expected = tokens_of(batch, "Count to 20.", max_new_tokens=60)
    innocents = [generation("Count to 20.") for _ in range(3)]
    guilty = [generation("hello", grammar=BAD_GRAMMAR) for _ in range(2)]

    failed = run(batch, innocents[0], guilty[0], innocents[1], guilty[1], innocents[2])

    assert {id(each.generation) for each in failed} == {id(each) for each in guilty}
    assert [each.tokens for each in innocents] == [expected] * 3

    num_recoveries = batch.num_recoveries
    run(batch, generation("hello", grammar=BAD_GRAMMAR))
    assert batch.num_recoveries == num_recoveries + 1
    assert tokens_of(batch, "Count to 20.", max_new_tokens=60) == expected


def test_the_cached_part_of_a_prompt_is_seen_also_if_it_is_longer_than_a_step(batch: Batch) -> None:
    text = "Repeat after me: " + "red green blue apple river stone cloud table window " * 8
    first, second = generation(text), generation(text)
    run(batch, first)
    run(batch, second)

    block = 32  # tokens in a block of the CPU's cache
    assert first.num_cached == 0
    assert second.num_cached % block == 0
    assert 0 < len(second.prompt_ids) - second.num_cached <= block

    text = "red green blue apple river stone cloud table window garden music paper "
    shared = generation("Repeat: " + text * 50)
    run(batch, shared)
    together = [generation("Repeat: " + text * 50 + extra) for extra in ("one", "two", "six")]
    run(batch, *together)

    for each in together:
        assert each.num_cached >= len(shared.prompt_ids) - 64
