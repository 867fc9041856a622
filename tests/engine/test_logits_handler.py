"""Handling of logits in the real engine, beside generations that do neither."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import (
    BAD_GRAMMAR,
    LOGPROBS,
    TOKENIZER,
    chat,
    done,
    generation,
    pipeline_of,
    run,
    tokens_of,
)
from vinery_serving.core.request import BeamSearch, Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.logits_handler import LogitsHandler
from vinery_serving.engine.supervision import PipelineBroken
from vinery_serving.transport.messages import GrammarSpec, LogitsSpec, LogprobsSpec, ReasoningBudget

pytestmark = pytest.mark.live

LONG_PROMPT = [10 + number % 500 for number in range(600)]  # more than two steps of it


@pytest.mark.smoke
def test_tokens_are_forced_forbidden_and_allowed_and_neighbours_are_as_alone(batch: Batch) -> None:
    def tokens(**spec: object) -> list[int]:
        return tokens_of(batch, "Count to 15.", LogitsSpec(**spec))

    plain = tokens()
    word = (plain[3], plain[4])
    without = tokens(bad_words=(word,))

    assert 77 not in plain
    assert tokens(bias=((77, 100.0),))[:5] == [77] * 5
    assert plain[0] not in tokens(bias=((plain[0], -100.0),))
    assert without[:4] == plain[:4]
    assert word not in set(itertools.pairwise(without)), "a word of several tokens"
    sampling = Sampling(temperature=1.5, seed=3)
    spec = LogitsSpec(allowed_ids=(60, 61, 62))
    assert set(tokens_of(batch, "hello", spec, sampling=sampling)) <= {60, 61, 62}

    question = "Count to 15."
    alone = tokens_of(batch, question)
    plain = [generation(question) for _ in range(4)]
    biased = [generation(question, LogitsSpec(bias=((50 + at, 100.0),))) for at in range(4)]
    mixed = [each for pair in zip(plain, biased, strict=True) for each in pair]

    assert run(batch, *mixed) == []

    assert [each.tokens for each in plain] == [alone] * 4
    assert [set(each.tokens) for each in biased] == [{50 + at} for at in range(4)]


@pytest.mark.smoke
def test_a_budget_ends_reasoning_and_the_greedy_token_is_the_likeliest(batch: Batch) -> None:
    end = TOKENIZER.token_to_id("</think>")
    prompt = chat("What is the capital of France?", reasons=True)
    free = tokens_of(batch, prompt, max_new_tokens=200)
    assert free.index(end) > 5
    budget = ReasoningBudget(5, is_open=True, start=(), end=(end,), closing_ids=(end,))

    held = tokens_of(batch, prompt, LogitsSpec(budget=budget), max_new_tokens=200)

    assert held.index(end) == 5
    assert held[:5] == free[:5]
    assert len(held) > 8

    spec = LogitsSpec(logprobs=LogprobsSpec(num_top=20))
    each = done(batch, generation("Tell me a story.", spec))
    assert len(each.logprobs) == len(each.tokens) > 3
    for token, logprobs in zip(each.tokens, each.logprobs, strict=True):
        assert logprobs.rank == 1
        assert logprobs.others[0] == (token, logprobs.logprob)
        assert len(logprobs.others) == 20
        assert sum(np.exp(logprob) for _, logprob in logprobs.others) <= 1 + 1e-5

    specs = LOGPROBS, structs.replace(LOGPROBS, bias=((77, 100.0),))
    plain, biased = (generation("hello", spec, max_new_tokens=1) for spec in specs)
    assert run(batch, plain, biased) == []
    assert biased.tokens == [77]
    best = [[id_ for id_, _ in each.logprobs[0].others] for each in (plain, biased)]
    assert best[0] == best[1]
    assert biased.logprobs[0].logprob < -3


def scores(generation: Generation) -> list[float]:
    return [each.logprob for each in generation.logits.prompt_logprobs]


SCORED = LogitsSpec(prompt_logprobs=LogprobsSpec(num_top=2))


@pytest.mark.smoke
def test_a_prompt_is_scored_whole_beside_others_with_a_new_salt_and_its_penalty(batch, pipeline):
    generated = done(batch, generation("Count to 15.", LogitsSpec(logprobs=LogprobsSpec())))
    whole = [*generated.prompt_ids.tolist(), *generated.tokens]

    scored = done(batch, generation(whole, SCORED, max_new_tokens=0))

    assert scored.tokens == []
    assert len(scores(scored)) == len(whole) - 1
    expected = [each.logprob for each in generated.logprobs]
    assert scores(scored)[-len(expected) :] == pytest.approx(expected, abs=0.05)

    tokens_of(batch, LONG_PROMPT, max_new_tokens=1)
    first = generation(LONG_PROMPT, SCORED, max_new_tokens=0)
    second = generation(LONG_PROMPT, SCORED, max_new_tokens=3)
    plain = generation(LONG_PROMPT, max_new_tokens=3)

    assert run(batch, first, second, plain) == []

    assert len(scores(first)) == len(LONG_PROMPT) - 1
    assert scores(second) == pytest.approx(scores(first), abs=0.05)
    assert second.tokens == plain.tokens
    assert (first.num_cached, second.num_cached) == (0, 0)
    assert plain.num_cached > 500

    expected = tokens_of(batch, "What is the capital of France?")
    one, other = (generation("What is the capital of France?") for _ in range(2))
    scored = [generation(LONG_PROMPT[:at], SCORED, max_new_tokens=0) for at in (20, 30)]

    assert run(batch, one, scored[0], other, scored[1]) == []

    assert one.tokens == other.tokens == expected
    assert [len(scores(each)) for each in scored] == [19, 29]
    assert [each.tokens for each in scored] == [[], []]

    salt = pipeline._next_salt
    first = done(batch, generation(LONG_PROMPT, SCORED, max_new_tokens=0))
    pipeline._next_salt = salt
    second = done(batch, generation(LONG_PROMPT, SCORED, max_new_tokens=0))

    assert scores(second) == pytest.approx(scores(first), abs=0.05)

    sampling = Sampling(repetition_penalty=3.0)
    plain = tokens_of(batch, "Count to 15.", sampling=sampling)
    assert plain != tokens_of(batch, "Count to 15.")
    assert tokens_of(batch, "Count to 15.", SCORED, sampling=sampling) == plain


@pytest.mark.smoke
def test_neither_a_failed_step_nor_a_processor_that_raises_disturbs_others(batch: Batch) -> None:
    digits = GrammarSpec("regex", "[0-9]{20}")

    def questions() -> list[Generation]:
        end = TOKENIZER.token_to_id("</think>")
        budget = ReasoningBudget(5, is_open=True, start=(), end=(end,), closing_ids=(end,))
        return [
            generation("Count to 15.", LogitsSpec(logprobs=LogprobsSpec(num_top=1))),
            generation(chat("hello", reasons=True), LogitsSpec(budget=budget)),
            generation("Count to 9.", SCORED),
            generation("a digit", LogitsSpec(logprobs=LogprobsSpec()), grammar=digits),
        ]

    undisturbed = questions()
    assert run(batch, *undisturbed) == []
    disturbed = questions()
    for each in disturbed:
        batch.add(each)
    bad = generation("hello", grammar=BAD_GRAMMAR)
    failed = run(batch, bad)

    assert [each.generation for each in failed] == [bad]
    assert [each.tokens for each in disturbed] == [each.tokens for each in undisturbed]
    assert [len(one.logprobs) for one in disturbed] == [len(one.logprobs) for one in undisturbed]
    assert len(disturbed[3].logprobs) == len(disturbed[3].tokens)
    assert scores(disturbed[2]) == pytest.approx(scores(undisturbed[2]), abs=0.05)

    def fails(tokens: object, _row: object) -> None:
        raise ValueError("an administrator's mistake")

    guilty, neighbour = generation("hello", LogitsSpec()), generation("Count to 15.")
    guilty.logits = LogitsHandler(guilty.submit, guilty.prompt_ids, [fails])
    alone = tokens_of(batch, "Count to 15.")

    failed = run(batch, guilty, neighbour)

    assert [(each.generation, each.code) for each in failed] == [(guilty, "engine_error")]
    assert neighbour.tokens == alone


BEAMS = BeamSearch(4)


def searched(prompt: str | list[int], beams: BeamSearch = BEAMS, **values: object) -> Generation:
    plain = generation(prompt, **values)  # type: ignore[arg-type]
    others = (2, 3) if beams is BEAMS else ()
    return Generation.of(None, structs.replace(plain.submit, beams=beams, other_ids=others))


@pytest.mark.smoke
def test_beams_return_their_best_sequences_also_beside_biased_neighbours(batch: Batch) -> None:
    search = done(batch, searched("What is the capital of France?"))
    best, second, third = search.tokens, *(other.tokens for other in search.other_beams)
    assert TOKENIZER.decode(best).strip() == "The capital of France is Paris."
    assert len({tuple(best), tuple(second), tuple(third)}) == 3

    beams = BeamSearch(2, no_repeat_ngram_size=2)
    search = done(batch, searched("Count to 15.", beams, max_new_tokens=40))
    pairs = list(itertools.pairwise(search.tokens))
    assert len(pairs) == len(set(pairs))

    search = searched("Tell me a story.", max_new_tokens=12)
    late = searched(LONG_PROMPT, max_new_tokens=5)
    biased = generation("hello", LogitsSpec(bias=((77, 100.0),)), max_new_tokens=15)
    other = generation("hello", LogitsSpec(bias=((78, 100.0),)), max_new_tokens=15)
    alone = done(batch, searched("Tell me a story.", max_new_tokens=12))

    assert run(batch, biased, search, late, other) == []

    assert biased.tokens == [77] * 15
    assert other.tokens == [78] * 15
    assert search.tokens == alone.tokens
    assert [len(each.tokens) for each in (late, *late.other_beams)] == [5, 5, 5]


def test_a_failed_step_with_beams_ends_the_process(tmp_path: Path) -> None:
    batch = Batch(pipeline_of(TINY_CHAT, tmp_path), capacity=16)
    batch.add(searched("Count to 9."))
    for _ in range(4):
        batch.step()
    batch.add(generation("hello", grammar=BAD_GRAMMAR))
    with pytest.raises(PipelineBroken):
        while len(batch):
            batch.step()
