"""After a broken step, generations that must not be read side by side come back one by one.

Innocent generations go back into the pipeline at once, but for those whose prompts part
inside of a block that an earlier sequence left half full: read in one step, they would write
over each other's words. These tests look into the batch to know that it came to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serving.engine.batch import Batch
from serving.engine.generation import FailedGeneration, Generation
from serving.engine.pipeline import Pipeline
from serving.engine.prefix_cache import BLOCK
from serving.transport.messages import GrammarSpec, SamplingParams
from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import TOKENIZER, emptied, ids_of, pipeline_of

pytestmark = pytest.mark.live

END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
BEGINNING = "<|im_start|>user\nCount to"
LIMITS = (30, 20, 25, 15)
PROMPTS = [f"{BEGINNING} {limit}.{END}" for limit in LIMITS]
TEXTS = [" ".join(map(str, range(1, limit + 1))) for limit in LIMITS]
BAD_GRAMMAR = GrammarSpec("json_schema", '{"type": "nonsense"}')
PENALTIES = SamplingParams(frequency_penalty=0.3, presence_penalty=0.2)
SAMPLED = SamplingParams(temperature=1.5, seed=7)
DIGITS = GrammarSpec("regex", "([0-9]{1,2} ){12}x")

Make = Callable[[str], Generation]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"), enable_prefix_caching=True)


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Nothing that others left can reach what this one writes."""
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("uncached"), enable_prefix_caching=False)


@pytest.fixture
def batch(pipeline: Pipeline) -> Iterator[Batch]:
    yield from emptied(pipeline)


def generation(prompt: str | list[int], **values: Any) -> Generation:
    """That goes on from the words as they are."""
    ids = ids_of(prompt) if isinstance(prompt, str) else prompt
    return in_process.generation(ids, **{"max_new_tokens": 120, **values})


def step(batch: Batch) -> list[FailedGeneration]:
    result = batch.step()
    for made in result.generated:
        made.generation.tokens += made.token_ids
    return result.failed


def run(batch: Batch, *generations: Generation) -> list[FailedGeneration]:
    """As the loop does: each joins as soon as it may."""
    waiting, broken = list(generations), []
    while waiting or len(batch):
        while waiting and batch.has_free_slot and batch.may_join(waiting[0]):
            assert batch.add(waiting.pop(0)) is None
        broken += step(batch)
    return broken


def start(batch: Batch, generations: list[Generation], *, num_tokens: int) -> None:
    """Bring all of them into the middle of their answers."""
    waiting = list(generations)
    while waiting or min(len(each.tokens) for each in generations) < num_tokens:
        while waiting and batch.has_free_slot and batch.may_join(waiting[0]):
            assert batch.add(waiting.pop(0)) is None
        assert step(batch) == []


def text_of(generation: Generation) -> str:
    text: str = TOKENIZER.decode(generation.tokens, skip_special_tokens=True)
    return text


def leave_half_a_block(batch: Batch) -> None:
    """An earlier sequence ends where the prompts have not yet parted."""
    run(batch, generation(BEGINNING, max_new_tokens=1))


def break_a_step(batch: Batch) -> tuple[Generation, list[FailedGeneration]]:
    guilty = generation("<|im_start|>user\nhello" + END, grammar=BAD_GRAMMAR)
    batch.add(guilty)
    return guilty, step(batch)


@pytest.mark.parametrize(
    "make",
    [
        generation,
        lambda prompt: generation(prompt, sampling=PENALTIES),
        lambda prompt: generation(prompt, sampling=SAMPLED),
        lambda prompt: generation(prompt, grammar=DIGITS),
    ],
    ids=["greedy", "penalised", "sampled", "within a grammar"],
)
def test_nobody_is_answered_what_another_asked(
    batch: Batch, uncached: Pipeline, make: Make
) -> None:
    alone = [make(prompt) for prompt in PROMPTS]
    for each in alone:
        assert run(Batch(uncached, capacity=1), each) == []
    leave_half_a_block(batch)
    together = [make(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)

    guilty, broken = break_a_step(batch)

    assert [each.generation for each in broken] == [guilty]
    # The first is back already, and each of the others would share its half-full block.
    assert together[0] in batch._running
    assert set(map(id, together[1:])) <= set(map(id, batch._suspects))
    assert not batch.has_free_slot
    run(batch)
    assert [each.tokens for each in together] == [each.tokens for each in alone]


def test_what_was_waited_for_is_right_in_its_words_too(batch: Batch) -> None:
    leave_half_a_block(batch)
    together = [generation(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)

    guilty, broken = break_a_step(batch)
    broken += run(batch)

    assert [(each.generation, each.code) for each in broken] == [(guilty, "invalid_grammar")]
    assert [text_of(each) for each in together] == TEXTS
    # Nor has the cache kept anything mixed for those who come later.
    later = [generation(prompt) for prompt in PROMPTS]
    assert run(batch, *later) == []
    assert [text_of(each) for each in later] == TEXTS


def test_innocents_that_share_no_half_block_go_back_at_once(batch: Batch) -> None:
    together = [generation(f"<|im_start|>user\n{text}{END}") for text in ("Hi.", "Count to 9.")]
    start(batch, together, num_tokens=2)

    break_a_step(batch)

    assert set(map(id, together)) <= set(map(id, batch._running))
    assert not set(map(id, together)) & set(map(id, batch._suspects))


def test_one_that_waits_can_be_taken_out(batch: Batch) -> None:
    leave_half_a_block(batch)
    together = [generation(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)
    break_a_step(batch)
    gone = next(each for each in together if each in batch._suspects)
    num_tokens = len(gone.tokens)

    batch.remove(gone)
    run(batch)

    assert len(gone.tokens) == num_tokens
    others = [(each, text) for each, text in zip(together, TEXTS, strict=True) if each is not gone]
    assert [text_of(each) for each, _ in others] == [text for _, text in others]


def test_a_second_guilty_one_hurts_none_that_waits(batch: Batch) -> None:
    leave_half_a_block(batch)
    together = [generation(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)
    guilty = [
        generation(f"<|im_start|>user\n{text}{END}", grammar=BAD_GRAMMAR) for text in ("a", "b")
    ]
    for each in guilty:
        batch.add(each)

    broken = run(batch)

    assert {id(each.generation) for each in broken} == {id(each) for each in guilty}
    assert [text_of(each) for each in together] == TEXTS


def test_a_prompt_that_was_cut_in_the_middle_of_its_reading_is_kept_from_its_like(
    batch: Batch, uncached: Pipeline
) -> None:
    """A broken step takes it out when a half-full block of it is in the cache, and two others
    begin as far as that like it, and fill the block differently."""
    guilty = generation(f"<|im_start|>user\nhello{END}", grammar=BAD_GRAMMAR)
    cut = generation([10 + number % 500 for number in range(40 * BLOCK)], max_new_tokens=12)
    batch.add(guilty)
    batch.add(cut)
    broken = step(batch)
    # The other prompt had a place in that step, too: no whole number of blocks was left.
    num_prefilled = cut.first_chunk_end or 0
    assert num_prefilled % BLOCK
    assert cut in batch._suspects
    batch.remove(cut)

    start_of_cut = cut.prompt_ids[:num_prefilled].tolist()
    prompts = [[*start_of_cut, *[60 + at] * BLOCK] for at in range(2)]
    alone = [generation(prompt, max_new_tokens=12) for prompt in prompts]
    for each in alone:
        assert run(Batch(uncached, capacity=1), each) == []
    others = [generation(prompt, max_new_tokens=12) for prompt in prompts]
    broken += run(batch)
    assert batch.may_join(others[0])
    batch.add(others[0])
    assert not batch.may_join(others[1])
    broken += run(batch, others[1])

    assert [each.generation for each in broken] == [guilty]
    assert [each.tokens for each in others] == [each.tokens for each in alone]
