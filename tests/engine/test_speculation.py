"""Draft tokens, from a draft model or the prompt: the same text in fewer steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import TOKENIZER, chat, emptied, generation, pipeline_of, run
from tests.engine.test_known_tokens import generation as counting
from tests.engine.test_logits_handler import SCORED, scores
from vinery_serving.core.request import GrammarKind
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import (
    GrammarSpec,
    LogitsSpec,
    LogprobsSpec,
    ReasoningBudget,
    SamplingParams,
    SpeculationSpec,
)

pytestmark = pytest.mark.live

TINY_DRAFT = TINY_CHAT.parent / "tiny-draft"
QUESTIONS = ["Count to 30.", "What is the capital of France?", "Tell me a story.", "hello"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module", params=[{"draft_model": str(TINY_DRAFT)}, {"prompt_lookup": True}])
def drafting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("drafting"), **request.param)


@pytest.fixture
def batch(drafting: Pipeline) -> Iterator[Batch]:
    yield from emptied(drafting)


@pytest.fixture
def plain_batch(plain: Pipeline) -> Iterator[Batch]:
    yield from emptied(plain)


def test_greedy_text_is_the_same_with_and_without(batch: Batch, plain_batch: Batch) -> None:
    expected = [generation(question, max_new_tokens=80) for question in QUESTIONS]
    assert run(plain_batch, *expected) == []
    result = [generation(question, max_new_tokens=80) for question in QUESTIONS]
    assert run(batch, *result) == []
    assert [each.tokens for each in result] == [each.tokens for each in expected]


@pytest.mark.parametrize("num_known", [1, 7, 39])
@pytest.mark.parametrize(
    "values",
    [{}, {"sampling": SamplingParams(temperature=1.2, seed=7)}],
    ids=["greedy", "seeded"],
)
def test_an_answer_goes_on_after_the_tokens_of_a_lost_engine(
    batch: Batch, values: dict[str, SamplingParams], num_known: int
) -> None:
    first = counting(**values)
    assert run(batch, first) == []
    one = counting(first.tokens[:num_known], **values)

    assert run(batch, one) == []

    assert one.tokens == first.tokens
    assert first.num_proposed > 0


def test_draft_and_accepted_tokens_are_counted(batch: Batch) -> None:
    result = generation("Count to 30.", max_new_tokens=90)
    assert run(batch, result) == []
    assert 0 < result.num_accepted <= result.num_proposed
    assert result.num_accepted < len(result.tokens)


def test_a_request_may_choose_the_number_of_draft_tokens(batch: Batch) -> None:
    ngram = 3 if batch._pipeline._default_assist == SpeculationSpec(5, max_ngram_size=3) else 0
    submit = structs.replace(
        generation("Count to 9.").submit, assist=SpeculationSpec(2, max_ngram_size=ngram)
    )
    result = type(generation("x")).of(None, submit)
    batch.add(result)
    most = 0
    while len(batch):
        before = result.num_proposed
        for new in batch.step().generated:
            new.generation.tokens += new.token_ids
        most = max(most, result.num_proposed - before)
    assert most == 2


def test_each_row_is_handled_with_the_tokens_before_it(batch: Batch, plain_batch: Batch) -> None:
    def requests() -> list[object]:
        end = TOKENIZER.token_to_id("</think>")
        budget = ReasoningBudget(5, is_open=True, start=(), end=(end,), closing_ids=(end,))
        return [
            generation("Count to 15.", LogitsSpec(logprobs=LogprobsSpec(num_top=2))),
            generation("hello", LogitsSpec(bias=((77, 100.0),)), max_new_tokens=12),
            generation(
                chat("What is the capital of France?", reasons=True), LogitsSpec(budget=budget)
            ),
            generation("Count to 15.", LogitsSpec(bad_words=((229, 28),))),
            generation("Count to 9."),
        ]

    expected, result = requests(), requests()
    assert run(plain_batch, *expected) == []  # type: ignore[arg-type]
    assert run(batch, *result) == []  # type: ignore[arg-type]

    for one, other in zip(result, expected, strict=True):
        assert one.tokens == other.tokens  # type: ignore[attr-defined]
        logprobs, expected_logprobs = one.logprobs, other.logprobs  # type: ignore[attr-defined]
        assert [each.logprob for each in logprobs] == pytest.approx(
            [each.logprob for each in expected_logprobs], abs=0.05
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
        result = generation("Tell me a story.", sampling=sampling)
        assert run(batch, result) == []
        texts.append(result.tokens)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("temperature", [0.9, 1.2])
def test_sampled_text_is_as_good_as_without(
    batch: Batch, plain_batch: Batch, temperature: float
) -> None:
    beginning = TOKENIZER.encode(" ".join(map(str, range(1, 25))), add_special_tokens=False).ids

    def num_right(on: Batch) -> int:
        results = [
            generation(
                "Count to 60.",
                sampling=SamplingParams(temperature=temperature, seed=seed),
                max_new_tokens=len(beginning),
            )
            for seed in range(24)
        ]
        for each in results:  # one after the other: more prompts are cached then
            assert run(on, each) == []
        return sum(each.tokens == beginning for each in results)

    expected = num_right(plain_batch)
    assert expected >= 20
    assert num_right(batch) >= expected - 3


@pytest.mark.parametrize(
    "values",
    [
        {"top_k": 3},
        {"top_p": 0.5},
        {"min_p": 0.2},
        {"frequency_penalty": 0.4, "presence_penalty": 0.3},
        {"repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_each_sampling_parameter_gives_one_text_for_one_seed(
    batch: Batch, values: dict[str, float]
) -> None:
    sampling = SamplingParams(temperature=1.1, seed=5, **values)  # type: ignore[arg-type]
    first, again = (
        generation("Tell me a story.", sampling=sampling, max_new_tokens=60) for _ in range(2)
    )
    assert run(batch, first, again) == []
    assert first.tokens == again.tokens


def test_sampled_text_keeps_to_its_grammar(batch: Batch) -> None:
    grammar = GrammarSpec(GrammarKind.REGEX.value, "([0-9]{2} ){8}x")
    results = []
    for seed in range(6):
        each = generation("hello", sampling=SamplingParams(temperature=1.5, top_p=0.5, seed=seed))
        results.append(Generation.of(None, structs.replace(each.submit, grammar=grammar)))
    assert run(batch, *results) == []
    for each in results:
        assert re.fullmatch("([0-9]{2} ){8}x", TOKENIZER.decode(each.tokens).strip())


def test_a_confidence_threshold_allows_many_draft_tokens(tmp_path: Path) -> None:
    for batch in emptied(pipeline_of(TINY_CHAT, tmp_path, draft_model=str(TINY_DRAFT))):
        submit = generation("Count to 30.", max_new_tokens=80).submit
        assist = SpeculationSpec(confidence_threshold=0.5)
        result = type(generation("x")).of(None, structs.replace(submit, assist=assist))
        assert run(batch, result) == []
        assert result.num_accepted > 20


def test_a_missing_draft_folder_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"draft model's folder .*nowhere has no"):
        pipeline_of(TINY_CHAT, tmp_path, draft_model=str(tmp_path / "nowhere"))
