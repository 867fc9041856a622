"""How the batch recovers from failed steps, with the real engine, whose behaviour it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine import in_process
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.energy.meter import EnergyTotals, RequestEnergy
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import GrammarSpec, SamplingParams

pytestmark = pytest.mark.live

BAD_GRAMMAR = GrammarSpec("json_schema", '{"type": "nonsense"}')
GOOD_GRAMMAR = GrammarSpec("regex", "[0-9]{20}x")


def generation(text: str, **values: Any) -> Generation:
    return in_process.generation(text, **{"max_new_tokens": 60, **values})


def step(batch: Batch) -> list[FailedGeneration]:
    """One step; new tokens are added to their generations, as the loop does."""
    result = batch.step()
    for new in result.generated:
        new.generation.tokens += new.token_ids
    return result.failed


def run(batch: Batch) -> list[FailedGeneration]:
    failed: list[FailedGeneration] = []
    while len(batch):
        failed += step(batch)
    return failed


def tokens_of(batch: Batch, generation: Generation) -> list[int]:
    batch.add(generation)
    assert run(batch) == []
    return generation.tokens


def test_a_grammar_that_fails_the_step_fails_alone(batch: Batch) -> None:
    expected = tokens_of(batch, generation("Count to 30."))
    neighbours = [generation("Count to 30.") for _ in range(6)]
    guilty = generation("hello", grammar=BAD_GRAMMAR)
    for neighbour in neighbours:
        batch.add(neighbour)
    for _ in range(10):
        step(batch)
    batch.add(guilty)

    failed = run(batch)

    assert [(each.generation, each.code) for each in failed] == [(guilty, "invalid_grammar")]
    assert [each.tokens for each in neighbours] == [expected] * 6


def test_new_generations_beside_guilty_ones_are_innocent(batch: Batch) -> None:
    expected = tokens_of(batch, generation("Count to 20."))
    innocents = [generation("Count to 20.") for _ in range(3)]
    guilty = [generation("hello", grammar=BAD_GRAMMAR) for _ in range(2)]
    for each in [innocents[0], guilty[0], innocents[1], guilty[1], innocents[2]]:
        batch.add(each)

    failed = run(batch)

    assert {id(each.generation) for each in failed} == {id(each) for each in guilty}
    assert [each.tokens for each in innocents] == [expected] * 3


def test_a_constrained_neighbour_continues_in_its_grammar(batch: Batch) -> None:
    expected = tokens_of(batch, generation("Count.", grammar=GOOD_GRAMMAR))
    constrained = generation("Count.", grammar=GOOD_GRAMMAR)
    batch.add(constrained)
    for _ in range(8):
        step(batch)
    batch.add(generation("hello", grammar=BAD_GRAMMAR))

    failed = run(batch)

    assert len(failed) == 1
    assert constrained.tokens == expected


def test_a_penalised_neighbour_generates_the_same_tokens_as_alone(batch: Batch) -> None:
    sampling = SamplingParams(frequency_penalty=0.7, presence_penalty=0.4)
    expected = tokens_of(batch, generation("Tell me a story.", sampling=sampling))
    penalised = generation("Tell me a story.", sampling=sampling)
    batch.add(penalised)
    for _ in range(12):
        step(batch)
    batch.add(generation("hello", grammar=BAD_GRAMMAR))

    run(batch)

    assert penalised.tokens == expected


def test_the_batch_takes_new_generations_after_a_recovery(batch: Batch) -> None:
    expected = tokens_of(batch, generation("What is the capital of France?"))
    batch.add(generation("hello", grammar=BAD_GRAMMAR))
    run(batch)

    again = tokens_of(batch, generation("What is the capital of France?"))

    assert again == expected
    assert batch.num_recoveries == 1


def test_a_removed_generation_frees_its_slot(batch: Batch, pipeline: Pipeline) -> None:
    removed = generation("Count to 60.", max_new_tokens=500)
    batch.add(removed)
    for _ in range(5):
        step(batch)

    batch.remove(removed)
    while batch.has_work:
        step(batch)

    assert len(batch) == 0
    assert not pipeline.has_work


def test_the_hook_sees_how_much_of_a_prompt_was_cached(batch: Batch) -> None:
    text = "Repeat after me: " + "red green blue apple river stone cloud table window " * 8
    first, second = generation(text), generation(text)
    tokens_of(batch, first)
    tokens_of(batch, second)

    block = 32  # tokens in a block of the CPU's cache
    assert first.num_cached == 0
    assert second.num_cached is not None
    assert second.num_cached % block == 0
    assert 0 < len(second.prompt_ids) - second.num_cached <= block


def test_the_cached_part_of_prompts_longer_than_a_step_is_seen_too(batch: Batch) -> None:
    text = "red green blue apple river stone cloud table window garden music paper "
    shared = generation("Repeat: " + text * 50)
    tokens_of(batch, shared)
    together = [generation("Repeat: " + text * 50 + extra) for extra in ("one", "two", "six")]
    for each in together:
        batch.add(each)
    run(batch)

    for each in together:
        assert each.num_cached is not None
        assert each.num_cached >= len(shared.prompt_ids) - 64


def test_work_is_reported_for_metered_generations_only(batch: Batch) -> None:
    metered, probe = generation("Count to 30."), generation("Hello.")
    metered.energy = RequestEnergy(EnergyTotals())
    batch.reports_work = True
    batch.add(metered)
    batch.add(probe)
    assert {id(work.energy) for work in batch.step().works} == {id(metered.energy)}
