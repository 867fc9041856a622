"""Tokens proposed ahead, by a draft model or from the prompt: the same text in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from serving.engine.batch import Batch
from serving.engine.pipeline import Pipeline
from serving.transport.messages import (
    LogitsSpec,
    LogprobsSpec,
    ReasoningBudget,
    SamplingParams,
    SpeculationSpec,
)
from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import TOKENIZER, chat, emptied, generation, pipeline_of, run
from tests.engine.test_logits_handler import SCORED, scores

pytestmark = pytest.mark.live

TINY_DRAFT = TINY_CHAT.parent / "tiny-draft"
QUESTIONS = ["Count to 30.", "What is the capital of France?", "Tell me a story.", "hello"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module", params=[{"draft_model": str(TINY_DRAFT)}, {"prompt_lookup": True}])
def ahead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("ahead"), **request.param)


@pytest.fixture
def batch(ahead: Pipeline) -> Iterator[Batch]:
    yield from emptied(ahead)


@pytest.fixture
def plain_batch(plain: Pipeline) -> Iterator[Batch]:
    yield from emptied(plain)


def test_greedy_text_is_the_same_with_and_without(batch: Batch, plain_batch: Batch) -> None:
    expected = [generation(question, max_new_tokens=80) for question in QUESTIONS]
    assert run(plain_batch, *expected) == []
    made = [generation(question, max_new_tokens=80) for question in QUESTIONS]
    assert run(batch, *made) == []
    assert [each.tokens for each in made] == [each.tokens for each in expected]


def test_what_was_proposed_and_taken_is_counted(batch: Batch) -> None:
    made = generation("Count to 30.", max_new_tokens=90)
    assert run(batch, made) == []
    assert 0 < made.num_accepted <= made.num_proposed
    assert made.num_accepted < len(made.tokens)


def test_how_many_are_proposed_is_the_requests_to_say(batch: Batch) -> None:
    ngram = 3 if batch._pipeline._default_assist == SpeculationSpec(5, max_ngram_size=3) else 0
    submit = structs.replace(
        generation("Count to 9.").submit, assist=SpeculationSpec(2, max_ngram_size=ngram)
    )
    made = type(generation("x")).of(None, submit)
    batch.add(made)
    most = 0
    while len(batch):
        before = made.num_proposed
        for new in batch.step().generated:
            new.generation.tokens += new.token_ids
        most = max(most, made.num_proposed - before)
    assert most == 2


def test_each_row_is_seen_with_the_tokens_before_it(batch: Batch, plain_batch: Batch) -> None:
    def watched() -> list[object]:
        end = TOKENIZER.token_to_id("</think>")
        budget = ReasoningBudget(5, is_open=True, start=(), end=(end,), closing_ids=(end,))
        return [
            generation("Count to 15.", LogitsSpec(logprobs=LogprobsSpec(num_top=2))),
            generation("hello", LogitsSpec(bias=((77, 100.0),)), max_new_tokens=12),
            generation(
                chat("What is the capital of France?", thinks=True), LogitsSpec(budget=budget)
            ),
            generation("Count to 15.", LogitsSpec(bad_words=((229, 28),))),
            generation("Count to 9."),
        ]

    expected, made = watched(), watched()
    assert run(plain_batch, *expected) == []  # type: ignore[arg-type]
    assert run(batch, *made) == []  # type: ignore[arg-type]

    for one, other in zip(made, expected, strict=True):
        assert one.tokens == other.tokens  # type: ignore[attr-defined]
        told, known = one.logprobs, other.logprobs  # type: ignore[attr-defined]
        assert [each.logprob for each in told] == pytest.approx(
            [each.logprob for each in known], abs=0.05
        )


def test_prompts_are_scored_and_their_cached_part_is_known(batch: Batch) -> None:
    prompt = [10 + number % 500 for number in range(300)]
    first, again = (generation(prompt, max_new_tokens=2) for _ in range(2))
    assert run(batch, first) == []
    assert run(batch, again) == []
    scored = generation(prompt, SCORED, max_new_tokens=2)
    assert run(batch, scored) == []

    assert (first.num_cached, again.num_cached) == (0, 288)
    assert scored.num_cached == 0
    assert len(scores(scored)) == 299
    assert scored.tokens == first.tokens


def test_sampling_with_one_seed_gives_one_text(batch: Batch) -> None:
    sampling = SamplingParams(temperature=1.2, seed=7)
    texts = []
    for _ in range(2):
        made = generation("Tell me a story.", sampling=sampling)
        assert run(batch, made) == []
        texts.append(made.tokens)
    assert texts[0] == texts[1]


def test_a_draft_model_may_be_as_confident_as_it_likes(tmp_path: Path) -> None:
    for batch in emptied(pipeline_of(TINY_CHAT, tmp_path, draft_model=str(TINY_DRAFT))):
        submit = generation("Count to 30.", max_new_tokens=80).submit
        assist = SpeculationSpec(confidence_threshold=0.5)
        made = type(generation("x")).of(None, structs.replace(submit, assist=assist))
        assert run(batch, made) == []
        assert made.num_accepted > 20


def test_a_draft_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"draft model's folder .*nowhere has no"):
        pipeline_of(TINY_CHAT, tmp_path, draft_model=str(tmp_path / "nowhere"))
