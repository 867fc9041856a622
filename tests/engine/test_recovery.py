"""After a failed step, generations that must not be prefilled together are added one by one.

Innocent generations are added again at once, unless their prompts differ inside a block that an
earlier sequence left partly filled: prefilled in one step, such prompts would overwrite each
other's tokens. These tests look into the batch to prove that this case occurred.
"""

from typing import Any

import pytest

from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT, chat_text
from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import BLOCK
from vinery_serving.transport.messages import GrammarSpec

pytestmark = pytest.mark.live

BEGINNING = "<|im_start|>user\nCount to"
LIMITS = (30, 20, 25, 15)
PROMPTS = [chat_text(f"Count to {limit}.") for limit in LIMITS]
TEXTS = [" ".join(map(str, range(1, limit + 1))) for limit in LIMITS]


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Without a prefix cache no prompt can affect another."""
    return in_process.pipeline_of(
        TINY_CHAT, tmp_path_factory.mktemp("uncached"), enable_prefix_caching=False
    )


def generation(prompt: str | list[int], **values: Any) -> Generation:
    """Return a generation that continues the text itself, without a chat template."""
    ids = in_process.ids_of(prompt) if isinstance(prompt, str) else prompt
    return in_process.generation(ids, **{"max_new_tokens": 120, **values})


def start(batch: Batch, generations: list[Generation], *, num_tokens: int) -> None:
    """Run generations until each has `num_tokens` tokens."""
    waiting = list(generations)
    while waiting or min(len(each.tokens) for each in generations) < num_tokens:
        while waiting and batch.has_free_slot and batch.may_join(waiting[0]):
            assert batch.add(waiting.pop(0)) is None
        assert in_process.step(batch) == []


def text_of(generation: Generation) -> str:
    text: str = in_process.TOKENIZER.decode(generation.tokens, skip_special_tokens=True)
    return text


def leave_partial_block(batch: Batch) -> None:
    """Let an earlier sequence end inside the common prefix of the prompts."""
    in_process.run_in_turn(batch, generation(BEGINNING, max_new_tokens=1))


def fail_a_step(batch: Batch) -> tuple[Generation, list[FailedGeneration]]:
    guilty = generation(chat_text("hello"), grammar=in_process.BAD_GRAMMAR)
    batch.add(guilty)
    return guilty, in_process.step(batch)


@pytest.mark.smoke
@table(
    "values",
    [
        {},
        {"sampling": Sampling(frequency_penalty=0.3, presence_penalty=0.2)},
        {"sampling": Sampling(temperature=1.5, seed=7)},
        {"grammar": GrammarSpec("regex", "([0-9]{1,2} ){12}x")},
    ],
)
def test_no_generation_gets_the_answer_of_another(batch, uncached, values):
    alone, together, later = ([generation(each, **values) for each in PROMPTS] for _ in range(3))
    for each in alone:
        assert in_process.run(Batch(uncached, capacity=1), each) == []
    leave_partial_block(batch)
    start(batch, together, num_tokens=4)

    guilty, failed = fail_a_step(batch)

    assert [(each.generation, each.code) for each in failed] == [(guilty, "invalid_grammar")]
    # The first is running again; each of the others would share its partly filled block.
    assert together[0] in batch._running
    assert set(map(id, together[1:])) <= set(map(id, batch._suspects))
    assert not batch.has_free_slot
    assert in_process.run_in_turn(batch) == []
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    if not values:  # the cache has kept no mixture for later prompts
        assert in_process.run_in_turn(batch, *later) == []
        assert [text_of(each) for each in [*together, *later]] == TEXTS * 2


def test_suspects_wait_unless_they_share_no_block_can_be_removed_and_are_unaffected(batch):
    together = [generation(chat_text(text)) for text in ("Hi.", "Count to 9.")]
    start(batch, together, num_tokens=2)

    fail_a_step(batch)

    assert set(map(id, together)) <= set(map(id, batch._running))
    assert not set(map(id, together)) & set(map(id, batch._suspects))

    leave_partial_block(batch)
    together = [generation(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)
    fail_a_step(batch)
    removed = next(each for each in together if each in batch._suspects)
    num_tokens = len(removed.tokens)

    batch.remove(removed)
    in_process.run_in_turn(batch)

    assert len(removed.tokens) == num_tokens
    others = [(one, text) for one, text in zip(together, TEXTS, strict=True) if one is not removed]
    assert [text_of(each) for each, _ in others] == [text for _, text in others]

    leave_partial_block(batch)
    together = [generation(prompt) for prompt in PROMPTS]
    start(batch, together, num_tokens=4)
    guilty = [generation(chat_text(each), grammar=in_process.BAD_GRAMMAR) for each in ("a", "b")]
    for each in guilty:
        batch.add(each)

    failed = in_process.run_in_turn(batch)

    assert {id(each.generation) for each in failed} == {id(each) for each in guilty}
    assert [text_of(each) for each in together] == TEXTS


def test_a_half_prefilled_prompt_affects_no_similar_one(batch: Batch, uncached: Pipeline) -> None:
    """A failed step removes the prompt while the cache has a partly filled block. Two other prompts
    begin with that block and continue it differently."""
    guilty = generation(chat_text("hello"), grammar=in_process.BAD_GRAMMAR)
    cut = generation([10 + number % 500 for number in range(40 * BLOCK)], max_new_tokens=12)
    batch.add(guilty)
    batch.add(cut)
    failed = in_process.step(batch)
    # The other prompt was in that step too, so a partial block was left.
    num_prefilled = cut.first_chunk_end or 0
    assert num_prefilled % BLOCK
    assert cut in batch._suspects
    batch.remove(cut)

    start_of_cut = cut.prompt_ids[:num_prefilled].tolist()
    prompts = [[*start_of_cut, *[60 + at] * BLOCK] for at in range(2)]
    alone = [generation(prompt, max_new_tokens=12) for prompt in prompts]
    for each in alone:
        assert in_process.run(Batch(uncached, capacity=1), each) == []
    others = [generation(prompt, max_new_tokens=12) for prompt in prompts]
    failed += in_process.run_in_turn(batch)
    assert batch.may_join(others[0])
    batch.add(others[0])
    assert not batch.may_join(others[1])
    failed += in_process.run_in_turn(batch, others[1])

    assert [each.generation for each in failed] == [guilty]
    assert [each.tokens for each in others] == [each.tokens for each in alone]
