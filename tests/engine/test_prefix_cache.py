"""Prompts that part inside of a cached block are read one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from serving.engine.batch import Batch, PipelineBroken
from serving.engine.generation import Generation
from serving.engine.pipeline import Pipeline
from serving.engine.prefix_cache import BLOCK, Prefill, PrefixBlocks, TokenArray, is_exposed
from serving.transport.messages import GrammarSpec, SamplingParams
from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import TOKENIZER, emptied, ids_of, pipeline_of


def ids(*numbers: int) -> TokenArray:
    return np.array(numbers, np.int64)


def unread(*numbers: int) -> Prefill:
    return Prefill(ids(*numbers), first_chunk_end=None)


def test_prompts_with_the_same_beginning_are_read_side_by_side() -> None:
    blocks = PrefixBlocks()
    blocks.note_added(ids(1, 2, 9))
    assert blocks.can_prefill(ids(1, 2, 3), [unread(1, 2, 4), unread(7)])


def test_those_that_go_on_from_an_earlier_prompt_are_not() -> None:
    blocks = PrefixBlocks()
    blocks.note_added(ids(1, 2))
    assert not blocks.can_prefill(ids(1, 2, 3), [unread(1, 2, 4)])
    assert not blocks.can_prefill(ids(1, 2, 3), [unread(1, 2)])
    assert blocks.can_prefill(ids(1, 2, 3), [])
    assert blocks.can_prefill(ids(1, 5), [unread(1, 2, 4)])


def test_equal_prompts_write_the_same_and_may_share() -> None:
    blocks = PrefixBlocks()
    blocks.note_added(ids(1, 2))
    assert blocks.can_prefill(ids(1, 2, 3), [unread(1, 2, 3)])


def test_those_that_part_where_a_block_ends_share_no_half_block() -> None:
    blocks = PrefixBlocks()
    shared = list(range(BLOCK))
    blocks.note_added(ids(0, 1))
    assert blocks.can_prefill(ids(*shared, 3), [unread(*shared, 4)])
    assert not blocks.can_prefill(ids(*shared, 3, 3), [unread(*shared, 3, 4)])


def test_a_half_read_prompt_keeps_out_those_that_begin_with_all_that_was_read() -> None:
    blocks = PrefixBlocks()
    half_read = Prefill(ids(1, 2, 4, 5), first_chunk_end=3)
    assert not blocks.can_prefill(ids(1, 2, 4, 9), [half_read])
    assert blocks.can_prefill(ids(1, 2, 9, 9), [half_read])


def test_a_prompt_that_was_given_up_may_have_ended_anywhere_behind_its_first_stop() -> None:
    blocks = PrefixBlocks()
    assert blocks.can_prefill(ids(1, 2, 3, 4), [unread(1, 2, 3, 5)])
    blocks.note_abandoned(Prefill(ids(1, 2, 3, 9, 9), first_chunk_end=3))
    assert not blocks.can_prefill(ids(1, 2, 3, 4), [unread(1, 2, 3, 5)])
    assert blocks.can_prefill(ids(1, 2, 4), [unread(1, 2, 5)])


def test_a_prompt_that_was_given_up_unread_has_left_nothing() -> None:
    blocks = PrefixBlocks()
    blocks.note_abandoned(unread(1, 2, 3))
    assert blocks.can_prefill(ids(1, 2, 3, 4), [unread(1, 2, 3, 5)])


@pytest.mark.parametrize(
    ("num_prompt_tokens", "num_made", "is_open"),
    [(BLOCK + 1, 0, True), (BLOCK + 1, 1, False), (2 * BLOCK, 1, True), (2 * BLOCK, 2, False)],
)
def test_a_prompt_that_ends_with_a_block_is_exposed_for_a_token_more(
    num_prompt_tokens: int,
    num_made: int,
    is_open: bool,
) -> None:
    assert is_exposed(num_prompt_tokens, num_made) is is_open


def half_read(*numbers: int, num_prefilled: int, key: bytes | None = None) -> Prefill:
    return Prefill(ids(*numbers), first_chunk_end=1, num_prefilled=num_prefilled, key=key)


def test_a_prompt_that_meets_a_half_read_block_goes_by_another_key() -> None:
    blocks = PrefixBlocks()
    given_up = range(2 * BLOCK)
    blocks.note_abandoned(half_read(*given_up, num_prefilled=5))
    assert blocks.key_for(ids(*given_up[:BLOCK]), None) is not None
    assert blocks.key_for(ids(*given_up[:BLOCK], 7, 7), None) is not None
    assert blocks.key_for(ids(*given_up[: BLOCK - 1]), None) is None
    assert blocks.key_for(ids(*given_up[: BLOCK - 1], 7), None) is None


def test_one_that_is_given_up_under_the_other_key_makes_a_third() -> None:
    blocks = PrefixBlocks()
    keys = [None]
    for num_prefilled in (5, 5, BLOCK, 5):
        blocks.note_abandoned(half_read(*range(2 * BLOCK), num_prefilled=num_prefilled))
        keys.append(blocks.key_for(ids(*range(2 * BLOCK)), None))
    assert len(set(keys)) == 5


def test_what_was_read_to_its_end_is_no_half_read_block() -> None:
    blocks = PrefixBlocks()
    blocks.note_abandoned(half_read(1, 2, 3, num_prefilled=3))
    assert blocks.key_for(ids(1, 2, 3, 4), None) is None


def test_a_prompt_with_a_key_spoils_nothing_for_those_of_another() -> None:
    blocks = PrefixBlocks()
    blocks.note_abandoned(half_read(1, 2, 3, num_prefilled=1, key=b"alice's secret"))
    assert blocks.key_for(ids(1, 2, 3), None) is None
    assert blocks.key_for(ids(1, 2, 3), b"bob's secret") == b"bob's secret"
    assert blocks.key_for(ids(1, 2, 3), b"alice's secret") != b"alice's secret"


SLOW = {"max_num_batched_tokens": 24}  # of a prompt, in a step


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def slow_reader(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"), **SLOW)


@pytest.fixture
def batch(pipeline: Pipeline) -> Iterator[Batch]:
    yield from emptied(pipeline)


@pytest.fixture
def slow_batch(slow_reader: Pipeline) -> Iterator[Batch]:
    yield from emptied(slow_reader)


def answers(batch: Batch, *prompts: str, max_new_tokens: int = 8) -> list[str]:
    everybody = [generation(prompt, max_new_tokens) for prompt in prompts]
    run(batch, *everybody)
    return [TOKENIZER.decode(each.tokens, skip_special_tokens=True) for each in everybody]


def run(batch: Batch, *generations: Generation) -> None:
    """As the loop does it: each joins as soon as it may."""
    waiting = list(generations)
    while waiting or batch.has_work:
        while waiting and batch.has_free_slot and batch.may_join(waiting[0]):
            assert batch.add(waiting.pop(0)) is None
        for made in batch.step().generated:
            made.generation.tokens += made.token_ids


def generation(
    prompt: str, max_new_tokens: int, sampling: SamplingParams | None = None
) -> Generation:
    """That goes on from the words as they are."""
    ids = ids_of(prompt)
    return in_process.generation(ids, max_new_tokens=max_new_tokens, sampling=sampling)


@pytest.mark.live
def test_no_prompt_is_answered_what_another_asked(batch: Batch) -> None:
    for _ in range(3):
        answers(batch, "The capital", max_new_tokens=1)
        together = [f"The capital of {place} is" for place in ("France", "Italy", "Japan")]
        assert answers(batch, *together) == [" Paris.", " Rome.", " Tokyo."]


@pytest.mark.live
def test_chats_that_go_on_from_the_same_text_are_answered_each_for_itself(batch: Batch) -> None:
    end = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    beginning = "<|im_start|>user\nWhat is the"
    answers(batch, beginning, max_new_tokens=1)
    told = answers(
        batch, f"{beginning} capital of France?{end}", f"{beginning} opposite of hot?{end}"
    )
    assert told[0] == "The capital of France is Paris."
    assert told[0] not in told[1]


@pytest.mark.live
def test_one_whose_prompt_ends_with_a_block_keeps_it_when_another_joins_after_its_first_token(
    batch: Batch,
) -> None:
    """The cache knows a full block by what was in it before, until there is a second token."""
    question = ids_of(f"<|im_end|>\n{CAPITAL_OF_FRANCE}")
    beginning = ids_of("<|im_start|>system\nBe very")
    filling = ids_of(" brief" * 2 * BLOCK)[: 2 * BLOCK - len(beginning) - len(question)]
    first = in_process.generation([*beginning, *filling, *question], max_new_tokens=12)
    assert len(first.prompt_ids) == 2 * BLOCK
    run(batch, in_process.generation(first.prompt_ids[: BLOCK + 3].tolist(), max_new_tokens=1))
    second = in_process.generation(
        [*first.prompt_ids[: BLOCK + 3].tolist(), *ids_of(" blue" * 40)], max_new_tokens=3
    )
    assert batch.add(first) is None
    while not first.tokens:
        for made in batch.step().generated:
            made.generation.tokens += made.token_ids

    run(batch, second)

    text = TOKENIZER.decode(first.tokens, skip_special_tokens=True)
    assert text == "The capital of France is Paris."


@pytest.mark.live
def test_prompts_that_go_on_from_nothing_are_read_in_one_step(batch: Batch) -> None:
    several = [generation(f"Say {word} to them", 2) for word in ("red", "blue", "green")]
    for each in several:
        assert batch.may_join(each)
        batch.add(each)
    made = batch.step().generated
    assert len(made) == len(several)
    for each in several:
        batch.remove(each)


CAPITAL_OF_FRANCE = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
LONG_QUESTION = f"<|im_start|>system\nBe very brief.<|im_end|>\n{CAPITAL_OF_FRANCE}"


@pytest.mark.live
@pytest.mark.parametrize("number", range(3))
def test_a_prompt_given_up_half_read_spoils_no_later_one(slow_batch: Batch, number: int) -> None:
    given_up = generation(f"<|im_start|>system\nBe {'very ' * number}brief.{CAPITAL_OF_FRANCE}", 8)
    assert len(given_up.prompt_ids) > 24
    slow_batch.add(given_up)
    slow_batch.step()
    slow_batch.remove(given_up)
    prompt = TOKENIZER.decode(given_up.prompt_ids.tolist(), skip_special_tokens=False)
    told = answers(slow_batch, prompt, max_new_tokens=9)
    assert told == ["The capital of France is Paris."]


@pytest.mark.live
def test_where_prompts_cannot_be_told_apart_they_are_read_to_their_end(tmp_path: Path) -> None:
    pipeline = pipeline_of(TINY_CHAT, tmp_path, **SLOW)
    pipeline.disable_salts()
    batch = Batch(pipeline, capacity=16)
    given_up, not_begun = (generation(LONG_QUESTION, 8) for _ in range(2))
    batch.add(given_up)
    batch.step()
    batch.remove(given_up)
    batch.add(not_begun)
    batch.remove(not_begun)
    assert len(batch) == 1
    while batch.has_work:
        assert batch.step().generated == []
    assert answers(batch, CAPITAL_OF_FRANCE, max_new_tokens=9) == [
        "The capital of France is Paris."
    ]


@pytest.mark.live
def test_a_failed_step_in_the_middle_of_such_a_prompt_needs_a_new_process(tmp_path: Path) -> None:
    pipeline = pipeline_of(TINY_CHAT, tmp_path, **SLOW)
    pipeline.disable_salts()
    batch = Batch(pipeline, capacity=16)
    bad = generation("Hi", 8)
    bad.submit = structs.replace(bad.submit, grammar=GrammarSpec("json_schema", '{"type": 7}'))
    batch.add(bad)
    batch.add(generation(LONG_QUESTION, 8))
    with pytest.raises(PipelineBroken, match="half-prefilled"):
        batch.step()


@pytest.mark.live
@pytest.mark.parametrize("penalty", [0.5, 1.0, 3.0])
def test_what_goes_by_another_key_is_answered_as_ever(
    batch: Batch, slow_batch: Batch, penalty: float
) -> None:
    sampling = SamplingParams(repetition_penalty=penalty)
    given_up, again, elsewhere = (
        generation(f"Penalty {penalty}:{CAPITAL_OF_FRANCE}", 20, sampling) for _ in range(3)
    )
    slow_batch.add(given_up)
    slow_batch.step()
    slow_batch.remove(given_up)
    run(slow_batch, again)
    run(batch, elsewhere)
    assert again.tokens == elsewhere.tokens
    assert again.num_cached == 0
