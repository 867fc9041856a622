"""A generation gets no token beyond its grant, but pauses there or finishes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import TINY_CHAT, Answer
from tests.engine.in_process import LOGPROBS, Loop, a_loop, pipeline_of
from tests.tables import table
from vinery_serving.core.errors import DeadlineExceeded
from vinery_serving.core.request import BeamSearch, Sampling
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import GrammarSpec, LogitsSpec

pytestmark = pytest.mark.live
TEXT = "Count to 100."
NUM_TOKENS = 120
# A pause must not change these: sampling, grammars and log-probabilities use earlier tokens.
REQUESTS: list[dict[str, Any]] = [
    {},
    {"sampling": Sampling(frequency_penalty=0.7, presence_penalty=0.5)},
    {"grammar": GrammarSpec("regex", "([a-z]{3,9} ){60}")},
    {"logits": LogitsSpec(bias=((220, 2.0),), bad_words=((11, 220),))},
]


@pytest.fixture
def loop(pipeline: Pipeline, tmp_path: Path) -> Iterator[Loop]:
    with a_loop(pipeline, tmp_path) as loop:
        yield loop


def begun(loop: Loop, **values: Any) -> int:
    return loop.submit(TEXT, **{"max_new_tokens": NUM_TOKENS, **values})


def paused(loop: Loop, num_tokens: int = 5) -> int:
    """A generation that has used up its grant."""
    id_ = begun(loop, num_granted=num_tokens)
    loop.until(lambda: len(loop.answers[id_].tokens) == num_tokens)
    return id_


def end_of(answer: Answer) -> tuple[int, str | None]:
    return len(answer.tokens), answer.finish


@pytest.mark.smoke
def test_the_last_grant_ends_an_output_there_or_at_once_or_does_nothing(loop: Loop) -> None:
    capped, beside = begun(loop), begun(loop)
    loop.grant(capped, 50, is_last=True)

    short, long = loop.finish(capped, beside)

    assert (end_of(short), end_of(long)) == ((50, "length"), (NUM_TOKENS, "length"))
    assert short.tokens == long.tokens[:50]

    id_ = begun(loop)
    loop.until(lambda: loop.num_generated(id_) >= 20)
    num_generated = loop.num_generated(id_)

    loop.grant(id_, 10, is_last=True)

    assert not len(loop.kind._batch)
    assert end_of(*loop.finish(id_)) == (num_generated, "length")

    limited = begun(loop, max_new_tokens=7)
    searched = begun(loop, max_new_tokens=12, beams=BeamSearch(2))
    for id_, num_tokens in ((limited, 1000), (searched, 3), (12345, 1)):
        loop.grant(id_, num_tokens, is_last=True)
    assert [len(each.tokens) for each in loop.finish(limited, searched)] == [7, 12]


def pauses_change_nothing(loop: Loop, values: dict[str, Any]) -> None:
    whole = loop.ask(TEXT, max_new_tokens=60, **values)
    id_ = begun(loop, max_new_tokens=60, num_granted=0, **values)
    answer = loop.answers[id_]
    for num_granted in (1, 2, 15, 16, 45, 60):
        loop.grant(id_, num_granted)
        loop.until(lambda num=num_granted: len(answer.tokens) == num)
    assert (answer.tokens, answer.finish) == (whole.tokens, whole.finish)


@pytest.mark.smoke
@table("values", REQUESTS)
def test_a_pause_does_not_change_the_answer(loop: Loop, values: dict[str, Any]) -> None:
    pauses_change_nothing(loop, values)


def test_draft_tokens_change_nothing_at_pauses_and_do_not_exceed_a_grant(tmp_path: Path) -> None:
    pipeline = pipeline_of(TINY_CHAT, tmp_path, prompt_lookup=True)
    with a_loop(pipeline, tmp_path, prompt_lookup=True) as loop:
        pauses_change_nothing(loop, {})

        id_ = begun(loop, max_new_tokens=60, num_granted=7, logits=LOGPROBS)
        answer = loop.answers[id_]
        for num_granted in (7, 12, 30, 31, 60):
            loop.grant(id_, num_granted)
            loop.until(lambda num=num_granted: len(answer.tokens) == num)
            assert len(answer.logprobs) == num_granted

        id_ = begun(loop)
        loop.grant(id_, 101, is_last=True)
        assert end_of(*loop.finish(id_)) == (101, "length")


def test_a_paused_generation_is_next_and_a_waiting_one_can_be_ended(pipeline, tmp_path):
    with a_loop(pipeline, tmp_path, max_running=1) as loop:
        first = begun(loop, num_granted=5)
        others = [begun(loop) for _ in range(3)]
        loop.until(lambda: loop.num_generated(others[0]) > 0)

        loop.grant(first, NUM_TOKENS)
        answers = loop.finish(first, *others)

        assert loop.ended == [others[0], first, *others[1:]]
        assert {len(each.tokens) for each in answers} == {NUM_TOKENS}

        running, waiting = begun(loop), begun(loop)
        loop.grant(waiting, 0, is_last=True)
        ends = [end_of(each) for each in loop.finish(running, waiting)]
        assert ends == [(NUM_TOKENS, "length"), (0, "length")]


def test_a_paused_generation_can_be_cancelled_or_ended_and_has_a_deadline(loop: Loop) -> None:
    id_ = paused(loop)
    loop.cancel(id_, 3)
    stats = loop.kind.stats()
    assert (stats.num_running, stats.num_waiting, stats.tokens.num_output_tokens) == (0, 0, 3)

    id_ = paused(loop)
    loop.grant(id_, 5, is_last=True)
    assert end_of(*loop.finish(id_)) == (5, "length")

    id_ = paused(loop)
    (generation,) = loop.kind.requests.values()
    generation.arrived_at -= generation.submit.deadline_s

    (answer,) = loop.finish(id_)

    assert len(answer.tokens) == 5
    assert answer.rejection.code == DeadlineExceeded.code
