"""A generation makes no token beyond those that it was granted: it pauses there, or ends."""

from __future__ import annotations

from typing import Any

import pytest

from serving.core.errors import DeadlineExceeded
from serving.transport.messages import (
    FINISH_LENGTH,
    BeamSpec,
    GrammarSpec,
    LogitsSpec,
    LogprobsSpec,
    SamplingParams,
    TokenOutput,
)
from tests.engine.conftest import Answer, StartEngine

pytestmark = pytest.mark.live
LONG: dict[str, Any] = {"max_new_tokens": 400, "ignore_eos": True}
# What a pause must not change: to draw, to forbid and to judge tokens depends on those before.
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": SamplingParams()},
    "penalised": {"sampling": SamplingParams(frequency_penalty=0.7, presence_penalty=0.5)},
    "in a grammar": {"grammar": GrammarSpec("regex", "([a-z]{3,9} ){60}")},
    "biased": {"logits": LogitsSpec(bias=((220, 2.0),), bad_words=((11, 220),))},
    "with lookahead": {"sampling": SamplingParams()},
}


async def test_it_ends_at_exactly_that_token(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", **LONG)
        beside = gateway.submit("Count to 100.", **LONG)
        run = gateway.start(submit, beside)
        run.grant(submit.id, 150, is_last=True)
        capped, other = await gateway.finish(run, submit, beside)
    assert (len(capped.tokens), capped.finish) == (150, FINISH_LENGTH)
    assert (len(other.tokens), other.finish) == (400, FINISH_LENGTH)
    assert capped.tokens == other.tokens[:150]


async def test_one_that_has_made_more_ends_at_once(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", max_new_tokens=1500, ignore_eos=True)
        run = gateway.start(submit)
        num_made = 0
        while num_made < 20:
            said = await run.next(60)
            num_made += sum(len(each.token_ids) for each in said if isinstance(each, TokenOutput))
        run.grant(submit.id, 10, is_last=True)
        (answer,) = await gateway.finish(run, submit)
        stats = await gateway.client.ping(60)
    assert answer.finish == FINISH_LENGTH
    assert 20 <= num_made + len(answer.tokens) < 1500
    assert stats.num_running == 0


async def test_one_that_waits_for_a_place_can_be_ended(start_engine: StartEngine) -> None:
    async with start_engine(max_running=1) as gateway:
        running, waiting = (gateway.submit("Count to 100.", **LONG) for _ in range(2))
        run = gateway.start(running, waiting)
        run.grant(waiting.id, 0, is_last=True)
        answer, none = await gateway.finish(run, running, waiting)
    assert len(answer.tokens) == 400
    assert (none.tokens, none.finish) == ([], FINISH_LENGTH)


async def test_a_last_grant_above_its_own_limit_changes_nothing(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", max_new_tokens=7)
        run = gateway.start(submit)
        run.grant(submit.id, 1000, is_last=True)
        run.grant(12345, 1, is_last=True)
        (answer,) = await gateway.finish(run, submit)
    assert len(answer.tokens) == 7


async def test_tokens_proposed_ahead_do_not_pass_it(start_engine: StartEngine) -> None:
    async with start_engine(prompt_lookup=True) as gateway:
        submit = gateway.submit("Count to 100.", sampling=SamplingParams(), **LONG)
        run = gateway.start(submit)
        run.grant(submit.id, 101, is_last=True)
        (answer,) = await gateway.finish(run, submit)
    assert (len(answer.tokens), answer.finish) == (101, FINISH_LENGTH)


async def test_a_search_by_beams_goes_on(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 9.", max_new_tokens=12, beams=BeamSpec(2))
        run = gateway.start(submit)
        run.grant(submit.id, 3, is_last=True)
        (answer,) = await gateway.finish(run, submit)
    assert len(answer.tokens) == 12


async def test_it_pauses_at_the_last_of_its_tokens_and_goes_on_from_there(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        paused = gateway.submit("Count to 100.", num_granted=50, **LONG)
        (whole,) = await gateway.ask(gateway.submit("Count to 100.", **LONG))
        run, answer = gateway.start(paused), Answer()
        for num_granted in (50, 51, 200, 400):
            run.grant(paused.id, num_granted, is_last=False)
            await gateway.hear(run, answer, num_granted)
            for _ in range(5):
                stats = await gateway.client.ping(60)
                assert (stats.num_running, stats.num_output_tokens) == (0, 400 + num_granted)
            assert answer.is_over == (num_granted == 400)
    assert (answer.tokens, answer.finish) == (whole.tokens, FINISH_LENGTH)


@pytest.mark.parametrize("what", ASKED)
async def test_a_pause_changes_nothing_of_the_answer(start_engine: StartEngine, what: str) -> None:
    async with start_engine(prompt_lookup=what == "with lookahead") as gateway:
        asked = {"max_new_tokens": 120, **ASKED[what]}
        (whole,) = await gateway.ask(gateway.submit("Count to 30.", **asked))
        paused = gateway.submit("Count to 30.", num_granted=0, **asked)
        run, answer = gateway.start(paused), Answer()
        for num_granted in (1, 2, 30, 31, 90, 120):
            run.grant(paused.id, num_granted, is_last=False)
            await gateway.hear(run, answer, num_granted)
            assert len(answer.tokens) <= num_granted
    assert (answer.tokens, answer.finish) == (whole.tokens, whole.finish)


async def test_each_token_has_one_log_probability_whatever_pauses_there_are(
    start_engine: StartEngine,
) -> None:
    async with start_engine(prompt_lookup=True) as gateway:
        spec = LogitsSpec(logprobs=LogprobsSpec(num_top=2))
        asked = gateway.submit("Count to 30.", max_new_tokens=60, num_granted=7, logits=spec)
        run = gateway.start(asked)
        answer, num_logprobs = Answer(), 0
        while not answer.is_over:
            for each in await run.next(60):
                answer.take(each)
                num_logprobs += len(each.logprobs) if isinstance(each, TokenOutput) else 0
            run.grant(asked.id, len(answer.tokens) + 5, is_last=False)
    assert num_logprobs == len(answer.tokens) == 60


async def test_whoever_pauses_leaves_its_place_and_is_the_next_to_get_one(
    start_engine: StartEngine,
) -> None:
    async with start_engine(max_running=1) as gateway:
        paused = gateway.submit("Count to 100.", num_granted=5, **LONG)
        # It must not end before the grant has come.
        first = gateway.submit("Count to 100.", **{**LONG, "max_new_tokens": 1900})
        others = [first, *(gateway.submit("Count to 100.", **LONG) for _ in range(2))]
        run = gateway.start(paused, *others)
        answers = {submit.id: Answer() for submit in (paused, *others)}
        ended: list[int] = []
        while len(ended) < len(answers):
            for each in await run.next(60):
                answers[each.id].take(each)
                if answers[each.id].is_over:
                    ended.append(each.id)
            if len(answers[first.id].tokens) > 0:
                run.grant(paused.id, 400, is_last=False)
    assert ended == [first.id, paused.id, others[1].id, others[2].id]
    assert [len(answers[id_].tokens) for id_ in ended] == [1900, 400, 400, 400]


async def test_one_that_pauses_ends_when_there_is_no_more(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", num_granted=5, **LONG)
        run, answer = gateway.start(submit), Answer()
        await gateway.hear(run, answer, 5)
        run.grant(submit.id, 5, is_last=True)
        (rest,) = await gateway.finish(run, submit)
    assert (len(answer.tokens), rest.tokens, rest.finish) == (5, [], FINISH_LENGTH)


async def test_one_that_pauses_has_a_deadline(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", num_granted=5, **{**LONG, "deadline_s": 5.0})
        (answer,) = await gateway.ask(submit)
    assert len(answer.tokens) == 5
    assert answer.rejection is not None
    assert answer.rejection.code == DeadlineExceeded.code


async def test_one_that_pauses_is_forgotten_when_nobody_wants_it(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", num_granted=5, **LONG)
        run, answer = gateway.start(submit), Answer()
        await gateway.hear(run, answer, 5)
        run.cancel({submit.id: 3})
        stats = await gateway.client.ping(60)
    assert (stats.num_running, stats.num_waiting, stats.num_output_tokens) == (0, 0, 3)
