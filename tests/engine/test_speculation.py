"""Draft tokens, from a draft model or the prompt: the same text in fewer steps."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.engine.conftest import TINY_CHAT, TINY_DRAFT
from tests.engine.in_process import (
    TOKENIZER,
    assert_alike,
    chat,
    done,
    emptied,
    generation,
    pipeline_of,
    random_ids,
    run,
    run_in_turn,
    step,
    tokens_of,
)
from tests.engine.test_known_tokens import goes_on
from tests.engine.test_logits_handler import SCORED, scores
from tests.tables import table
from vinery_serving.core.request import GrammarKind, Sampling, SpeculativeDecoding
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.graph import MAX_DRAFT
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import GrammarSpec, LogitsSpec, LogprobsSpec, ReasoningBudget

pytestmark = pytest.mark.live

QUESTIONS = ["Count to 30.", "What is the capital of France?", "Tell me a story.", "hello"]
SEEDED = Sampling(temperature=1.2, seed=7)
WAYS = [{"draft_model": str(TINY_DRAFT)}, {"prompt_lookup": True}]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module", params=WAYS, ids=["draft model", "prompt lookup"])
def drafting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("drafting"), **request.param)


@pytest.fixture
def batch(drafting: Pipeline) -> Iterator[Batch]:
    yield from emptied(drafting)


@pytest.fixture
def plain_batch(plain: Pipeline) -> Iterator[Batch]:
    yield from emptied(plain)


def steps_of(batch: Batch, threshold: float, values: dict[str, Any]) -> list[int]:
    """Return the number of draft tokens of each step. The text is that without a threshold."""
    expected = done(batch, generation("Count to 30.", **values)).tokens
    assist = SpeculativeDecoding(confidence_threshold=threshold)
    result = assisted("Count to 30.", assist, **values)
    batch.add(result)
    sums = [0]
    while len(batch):
        step(batch)
        sums.append(result.num_proposed)
    assert result.tokens == expected
    return [after - before for before, after in pairwise(sums)]


def assisted(text: str, assist: SpeculativeDecoding, **values: Any) -> Generation:
    submit = generation(text, **values).submit
    return Generation.of(None, structs.replace(submit, assist=assist))


@pytest.mark.smoke
def test_greedy_texts_and_changed_logits_are_the_same_with_and_without(batch, plain_batch):
    expected, result = ([generation(one, max_new_tokens=80) for one in QUESTIONS] for _ in range(2))
    assert run(plain_batch, *expected) == run(batch, *result) == []

    assert [each.tokens for each in result] == [each.tokens for each in expected]
    counting = result[0]
    assert 0 < counting.num_accepted <= counting.num_proposed
    assert counting.num_accepted < len(counting.tokens)

    def requests() -> list[Generation]:
        end = TOKENIZER.token_to_id("</think>")
        reasoning = chat("What is the capital of France?", reasons=True)
        budget = ReasoningBudget(5, is_open=True, start=(), end=(end,), closing_ids=(end,))
        return [
            generation("Count to 15.", LogitsSpec(logprobs=LogprobsSpec(num_top=2))),
            generation("hello", LogitsSpec(bias=((77, 100.0),)), max_new_tokens=12),
            generation(reasoning, LogitsSpec(budget=budget)),
            generation("Count to 15.", LogitsSpec(bad_words=((229, 28),))),
            generation("Count to 9."),
        ]

    expected, result = requests(), requests()
    assert run(plain_batch, *expected) == run(batch, *result) == []

    for one, other in zip(result, expected, strict=True):
        assert_alike(one, other, 0.05)


def test_prompts_that_come_together_get_the_texts_that_they_get_alone(batch: Batch) -> None:
    prompts = [random_ids(seed, 280 + 13 * seed) for seed in range(8)]
    alone = [tokens_of(batch, each, max_new_tokens=6) for each in prompts]
    together = [generation(each, max_new_tokens=6) for each in prompts]
    assert run_in_turn(batch, *together) == []
    assert [each.tokens for each in together] == alone


@table("num_known, values", [(1, {}), (7, {"sampling": SEEDED}), (39, {})])
def test_an_answer_goes_on_after_the_tokens_of_a_lost_engine(batch, num_known, values):
    assert goes_on(batch, num_known, values).num_proposed > 0


def test_prompts_are_scored_draft_tokens_are_chosen_and_samples_are_as_good(batch, plain_batch):
    prompt = [10 + number % 500 for number in range(300)]
    first, again, scored = (
        done(batch, generation(prompt, spec, max_new_tokens=2)) for spec in (None, None, SCORED)
    )

    assert [each.num_cached for each in (first, again, scored)] == [0, 288, 0]
    assert len(scores(scored)) == 299
    assert scored.tokens == first.tokens

    ngram = 3 if batch._pipeline._default_assist == SpeculativeDecoding(5, max_ngram_size=3) else 0
    result = assisted("Count to 9.", SpeculativeDecoding(2, max_ngram_size=ngram, is_asked=True))
    batch.add(result)
    most = 0
    while len(batch):
        before = result.num_proposed
        step(batch)
        most = max(most, result.num_proposed - before)
    assert most == 2

    # About as many texts count rightly as without draft tokens.
    expected = num_right(plain_batch)
    assert expected >= 6
    assert num_right(batch) >= expected - 1

    grammar = GrammarSpec(GrammarKind.REGEX.value, "([0-9]{2} ){8}x")
    samplings = [Sampling(temperature=1.5, top_p=0.5, seed=seed) for seed in range(3)]
    results = [generation("hello", sampling=each, grammar=grammar) for each in samplings]
    assert run(batch, *results) == []
    for each in results:
        assert re.fullmatch("([0-9]{2} ){8}x", TOKENIZER.decode(each.tokens).strip())


def num_right(batch: Batch) -> int:
    """How many of eight sampled texts count rightly."""
    beginning = TOKENIZER.encode(" ".join(map(str, range(1, 25))), add_special_tokens=False).ids
    num = 0
    for seed in range(8):  # one after the other: more prompts are cached then
        sampling = Sampling(temperature=1.2, seed=seed)
        asked = generation("Count to 60.", sampling=sampling, max_new_tokens=len(beginning))
        num += done(batch, asked).tokens == beginning
    return num


def test_a_low_threshold_drafts_more_than_a_high_one_and_at_most_16_tokens_a_step(
    tmp_path: Path,
) -> None:
    for batch in emptied(pipeline_of(TINY_CHAT, tmp_path, draft_model=str(TINY_DRAFT))):
        for sampling in (Sampling(), SEEDED):
            values = {"sampling": sampling, "max_new_tokens": 80}
            steps = {each: steps_of(batch, each, values) for each in (1e-6, 0.9, 0.999)}
            assert len(steps[1e-6]) <= len(steps[0.9]) < len(steps[0.999])
            assert max(steps[1e-6]) in (MAX_DRAFT - 1, MAX_DRAFT)
            assert max(steps[0.999]) < MAX_DRAFT - 1

    with pytest.raises(RuntimeError, match=r"draft model's folder .*nowhere has no"):
        pipeline_of(TINY_CHAT, tmp_path, draft_model=str(tmp_path / "nowhere"))
