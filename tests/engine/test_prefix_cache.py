"""Prompts that differ inside a cached block are prefilled one after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT, chat_text
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import BLOCK, Prefill, PrefixBlocks, TokenArray, is_exposed
from vinery_serving.engine.supervision import PipelineBroken


def ids(*numbers: int) -> TokenArray:
    return np.array(numbers, np.int64)


def waiting(*numbers: int) -> Prefill:
    return Prefill(ids(*numbers), first_chunk_end=None)


BLOCK_IDS = tuple(range(BLOCK))


@table(
    "added, prompt, beside, expected",
    [
        # Prompts with a common prefix are prefilled together, unless an earlier prompt is a prefix.
        ((1, 2, 9), (1, 2, 3), [(1, 2, 4), (7,)], True),
        ((1, 2), (1, 2, 3), [(1, 2, 4)], False),
        ((1, 2), (1, 2, 3), [(1, 2)], False),
        ((1, 2), (1, 2, 3), [], True),
        ((1, 2), (1, 5), [(1, 2, 4)], True),
        # Equal prompts may share a block; prompts that differ from its start share none.
        ((1, 2), (1, 2, 3), [(1, 2, 3)], True),
        ((0, 1), (*BLOCK_IDS, 3), [(*BLOCK_IDS, 4)], True),
        ((0, 1), (*BLOCK_IDS, 3, 3), [(*BLOCK_IDS, 3, 4)], False),
    ],
)
def test_prompts_prefill_together_if_they_share_no_partial_block(added, prompt, beside, expected):
    blocks = PrefixBlocks()
    blocks.note_added(ids(*added))
    assert blocks.can_prefill(ids(*prompt), [waiting(*each) for each in beside]) is expected


def test_half_prefilled_and_abandoned_prompts_delay_others_or_give_them_another_key() -> None:
    blocks = PrefixBlocks()
    half = Prefill(ids(1, 2, 4, 5), first_chunk_end=3)
    assert not blocks.can_prefill(ids(1, 2, 4, 9), [half])
    assert blocks.can_prefill(ids(1, 2, 9, 9), [half])

    blocks = PrefixBlocks()
    blocks.note_abandoned(waiting(1, 2, 3))  # before its first step
    assert blocks.can_prefill(ids(1, 2, 3, 4), [waiting(1, 2, 3, 5)])
    blocks.note_abandoned(Prefill(ids(1, 2, 3, 9, 9), first_chunk_end=3))
    assert not blocks.can_prefill(ids(1, 2, 3, 4), [waiting(1, 2, 3, 5)])
    assert blocks.can_prefill(ids(1, 2, 4), [waiting(1, 2, 5)])

    blocks = PrefixBlocks()
    abandoned = range(2 * BLOCK)
    blocks.note_abandoned(half_prefilled(*abandoned, num_prefilled=5))
    another = blocks.key_for(ids(*abandoned[:BLOCK]), None)
    assert isinstance(another, bytes)
    assert blocks.key_for(ids(*abandoned[:BLOCK], 7, 7), None) == another
    assert blocks.key_for(ids(*abandoned[: BLOCK - 1]), None) is None
    assert blocks.key_for(ids(*abandoned[: BLOCK - 1], 7), None) is None

    blocks = PrefixBlocks()
    keys = [None]
    for num_prefilled in (5, 5, BLOCK, 5):
        blocks.note_abandoned(half_prefilled(*range(2 * BLOCK), num_prefilled=num_prefilled))
        keys.append(blocks.key_for(ids(*range(2 * BLOCK)), None))
    assert len(set(keys)) == 5

    blocks = PrefixBlocks()
    blocks.note_abandoned(half_prefilled(1, 2, 3, num_prefilled=3))
    assert blocks.key_for(ids(1, 2, 3, 4), None) is None

    blocks = PrefixBlocks()
    blocks.note_abandoned(half_prefilled(1, 2, 3, num_prefilled=1, key=b"alice's secret"))
    assert blocks.key_for(ids(1, 2, 3), None) is None
    assert blocks.key_for(ids(1, 2, 3), b"bob's secret") == b"bob's secret"
    assert blocks.key_for(ids(1, 2, 3), b"alice's secret") != b"alice's secret"


@table(
    "num_prompt_tokens, num_generated, is_exposed_then",
    [(BLOCK + 1, 0, True), (BLOCK + 1, 1, False), (2 * BLOCK, 1, True), (2 * BLOCK, 2, False)],
)
def test_a_prompt_that_fills_a_block_is_exposed(num_prompt_tokens, num_generated, is_exposed_then):
    assert is_exposed(num_prompt_tokens, num_generated) is is_exposed_then


def half_prefilled(*numbers: int, num_prefilled: int, key: bytes | None = None) -> Prefill:
    return Prefill(ids(*numbers), first_chunk_end=1, num_prefilled=num_prefilled, key=key)


SLOW = {"max_num_batched_tokens": 24}  # a prompt takes several steps


@pytest.fixture(scope="module")
def slow_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return in_process.pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"), **SLOW)


@pytest.fixture
def slow_batch(slow_pipeline: Pipeline) -> Iterator[Batch]:
    yield from in_process.emptied(slow_pipeline)


def answers(batch: Batch, *prompts: str, max_new_tokens: int = 8) -> list[str]:
    generations = [generation(prompt, max_new_tokens) for prompt in prompts]
    assert in_process.run_in_turn(batch, *generations) == []
    return [
        in_process.TOKENIZER.decode(each.tokens, skip_special_tokens=True) for each in generations
    ]


def generation(prompt: str, num: int, **values: Any) -> Generation:
    """Return a generation that continues the text itself, without a chat template."""
    return in_process.generation(in_process.ids_of(prompt), max_new_tokens=num, **values)


@pytest.mark.live
@pytest.mark.smoke
def test_prompts_and_chats_get_their_own_answers_and_keep_their_blocks(batch: Batch) -> None:
    for _ in range(3):
        answers(batch, "The capital", max_new_tokens=1)
        together = [f"The capital of {country} is" for country in ("France", "Italy", "Japan")]
        assert answers(batch, *together) == [" Paris.", " Rome.", " Tokyo."]

    answers(batch, "<|im_start|>user\nWhat is the", max_new_tokens=1)
    texts = answers(batch, FRANCE, chat_text("What is the opposite of hot?"))
    assert texts[0] == "The capital of France is Paris."
    assert texts[0] not in texts[1]

    # Until there is a second token, the cache knows the full block by its former tokens.
    question = in_process.ids_of(f"<|im_end|>\n{FRANCE}")
    beginning = in_process.ids_of("<|im_start|>system\nBe very")
    filling = in_process.ids_of(" brief" * 2 * BLOCK)[: 2 * BLOCK - len(beginning) - len(question)]
    first = in_process.generation([*beginning, *filling, *question], max_new_tokens=12)
    assert len(first.prompt_ids) == 2 * BLOCK
    beginning = first.prompt_ids[: BLOCK + 3].tolist()
    in_process.run_in_turn(batch, in_process.generation(beginning, max_new_tokens=1))
    second = in_process.generation([*beginning, *in_process.ids_of(" blue" * 40)], max_new_tokens=3)
    assert batch.add(first) is None
    while not first.tokens:
        in_process.step(batch)

    in_process.run_in_turn(batch, second)

    text = in_process.TOKENIZER.decode(first.tokens, skip_special_tokens=True)
    assert text == "The capital of France is Paris."

    several = [generation(f"Write {word} to them", 2) for word in ("red", "blue", "green")]
    for each in several:
        assert batch.may_join(each)
        batch.add(each)
    generated = batch.step().generated
    assert len(generated) == len(several)
    for each in several:
        batch.remove(each)


@pytest.mark.live
def test_the_cached_part_of_a_prompt_is_seen_also_if_it_is_longer_than_a_step(batch: Batch) -> None:
    text = "red green blue apple river stone cloud table window garden music paper "
    first, second = (generation("Repeat: " + text * 8, 2) for _ in range(2))
    for each in (first, second):
        in_process.done(batch, each)
    assert first.num_cached == 0
    assert second.num_cached % BLOCK == 0
    assert 0 < len(second.prompt_ids) - second.num_cached <= BLOCK

    shared = in_process.done(batch, generation("Repeat: " + text * 50, 2))
    together = [generation("Repeat: " + text * 50 + extra, 2) for extra in ("one", "two", "six")]
    assert in_process.run(batch, *together) == []
    for each in together:
        assert each.num_cached >= len(shared.prompt_ids) - 2 * BLOCK


FRANCE = chat_text("What is the capital of France?")
LONG_QUESTION = f"<|im_start|>system\nBe very brief.<|im_end|>\n{FRANCE}"


@pytest.mark.live
@table("number", range(3))
def test_a_prompt_abandoned_halfway_affects_no_later_one(slow_batch: Batch, number: int) -> None:
    abandoned = generation(f"<|im_start|>system\nBe {'very ' * number}brief.{FRANCE}", 8)
    assert len(abandoned.prompt_ids) > 24
    slow_batch.add(abandoned)
    slow_batch.step()
    slow_batch.remove(abandoned)
    prompt = in_process.TOKENIZER.decode(abandoned.prompt_ids.tolist(), skip_special_tokens=False)
    texts = answers(slow_batch, prompt, max_new_tokens=9)
    assert texts == ["The capital of France is Paris."]


@pytest.mark.live
def test_without_salts_prompts_are_prefilled_to_their_end_or_a_step_fails(tmp_path: Path) -> None:
    pipeline = in_process.pipeline_of(TINY_CHAT, tmp_path, **SLOW)
    pipeline.disable_salts()
    batch = Batch(pipeline, capacity=16)
    abandoned, not_begun = (generation(LONG_QUESTION, 8) for _ in range(2))
    batch.add(abandoned)
    batch.step()
    batch.remove(abandoned)
    batch.add(not_begun)
    batch.remove(not_begun)
    assert len(batch) == 1
    while batch.has_work:
        assert batch.step().generated == []
    assert answers(batch, FRANCE, max_new_tokens=9) == ["The capital of France is Paris."]

    batch.add(generation("Hi", 8, grammar=in_process.BAD_GRAMMAR))
    batch.add(generation(f"Hi. {LONG_QUESTION}", 8))
    with pytest.raises(PipelineBroken, match="half-prefilled"):
        batch.step()
