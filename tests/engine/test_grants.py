"""A generation gets no token beyond its grant: it pauses there, or finishes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Answer, SharedEngine
from vinery_serving.core.errors import DeadlineExceeded
from vinery_serving.transport.messages import (
    FINISH_LENGTH,
    BeamSpec,
    GrammarSpec,
    LogitsSpec,
    LogprobsSpec,
    SamplingParams,
    TokenOutput,
)

pytestmark = pytest.mark.live
LONG: dict[str, Any] = {"max_new_tokens": 400, "ignore_eos": True}
# A pause must not change these: sampling, grammars and log-probabilities use earlier tokens.
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": SamplingParams()},
    "penalised": {"sampling": SamplingParams(frequency_penalty=0.7, presence_penalty=0.5)},
    "in a grammar": {"grammar": GrammarSpec("regex", "([a-z]{3,9} ){60}")},
    "biased": {"logits": LogitsSpec(bias=((220, 2.0),), bad_words=((11, 220),))},
    "with prompt lookup": {"sampling": SamplingParams()},
}


async def test_the_last_grant_ends_the_output_at_exactly_that_token(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 100.", **LONG)
        beside = gateway.submit("Count to 100.", **LONG)
        stream = gateway.start(submit, beside)
        stream.grant(submit.id, 150, is_last=True)
        capped, other = await gateway.finish(stream, submit, beside)
    assert (len(capped.tokens), capped.finish) == (150, FINISH_LENGTH)
    assert (len(other.tokens), other.finish) == (400, FINISH_LENGTH)
    assert capped.tokens == other.tokens[:150]


async def test_a_generation_beyond_its_last_grant_ends_at_once(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 100.", max_new_tokens=1500, ignore_eos=True)
        stream = gateway.start(submit)
        num_generated = 0
        while num_generated < 20:
            updates = await stream.next(60)
            num_generated += sum(
                len(each.token_ids) for each in updates if isinstance(each, TokenOutput)
            )
        stream.grant(submit.id, 10, is_last=True)
        (answer,) = await gateway.finish(stream, submit)
        stats = await gateway.stats()
    assert answer.finish == FINISH_LENGTH
    assert 20 <= num_generated + len(answer.tokens) < 1500
    assert stats.num_running == 0


async def test_a_waiting_generation_can_be_ended(shared_engine: SharedEngine) -> None:
    async with shared_engine(max_running=1) as gateway:
        running, waiting = (gateway.submit("Count to 100.", **LONG) for _ in range(2))
        stream = gateway.start(running, waiting)
        stream.grant(waiting.id, 0, is_last=True)
        answer, empty = await gateway.finish(stream, running, waiting)
    assert len(answer.tokens) == 400
    assert (empty.tokens, empty.finish) == ([], FINISH_LENGTH)


async def test_a_last_grant_above_the_requests_limit_changes_nothing(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 100.", max_new_tokens=7)
        stream = gateway.start(submit)
        stream.grant(submit.id, 1000, is_last=True)
        stream.grant(12345, 1, is_last=True)
        (answer,) = await gateway.finish(stream, submit)
    assert len(answer.tokens) == 7


async def test_draft_tokens_do_not_exceed_the_grant(shared_engine: SharedEngine) -> None:
    async with shared_engine(prompt_lookup=True) as gateway:
        submit = gateway.submit("Count to 100.", sampling=SamplingParams(), **LONG)
        stream = gateway.start(submit)
        stream.grant(submit.id, 101, is_last=True)
        (answer,) = await gateway.finish(stream, submit)
    assert (len(answer.tokens), answer.finish) == (101, FINISH_LENGTH)


async def test_a_beam_search_ignores_grants(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 9.", max_new_tokens=12, beams=BeamSpec(2))
        stream = gateway.start(submit)
        stream.grant(submit.id, 3, is_last=True)
        (answer,) = await gateway.finish(stream, submit)
    assert len(answer.tokens) == 12


async def test_a_generation_pauses_at_its_grant_and_continues_from_there(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine() as gateway:
        num_before = (await gateway.stats()).num_output_tokens
        paused = gateway.submit("Count to 100.", num_granted=50, **LONG)
        (whole,) = await gateway.ask(gateway.submit("Count to 100.", **LONG))
        stream, answer = gateway.start(paused), Answer()
        for num_granted in (50, 51, 200, 400):
            stream.grant(paused.id, num_granted, is_last=False)
            await gateway.read_until(stream, answer, num_granted)
            for _ in range(5):
                stats = await gateway.stats()
                num_output_tokens = stats.num_output_tokens - num_before
                assert (stats.num_running, num_output_tokens) == (0, 400 + num_granted)
            assert answer.is_over == (num_granted == 400)
    assert (answer.tokens, answer.finish) == (whole.tokens, FINISH_LENGTH)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_pause_does_not_change_the_answer(shared_engine: SharedEngine, name: str) -> None:
    options = {"prompt_lookup": True} if name == "with prompt lookup" else {}
    async with shared_engine(**options) as gateway:
        values = {"max_new_tokens": 120, **REQUESTS[name]}
        (whole,) = await gateway.ask(gateway.submit("Count to 30.", **values))
        paused = gateway.submit("Count to 30.", num_granted=0, **values)
        stream, answer = gateway.start(paused), Answer()
        for num_granted in (1, 2, 30, 31, 90, 120):
            stream.grant(paused.id, num_granted, is_last=False)
            await gateway.read_until(stream, answer, num_granted)
            assert len(answer.tokens) <= num_granted
    assert (answer.tokens, answer.finish) == (whole.tokens, whole.finish)


async def test_each_token_has_one_log_probability_despite_pauses(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine(prompt_lookup=True) as gateway:
        spec = LogitsSpec(logprobs=LogprobsSpec(num_top=2))
        submit = gateway.submit("Count to 30.", max_new_tokens=60, num_granted=7, logits=spec)
        stream = gateway.start(submit)
        answer, num_logprobs = Answer(), 0
        while not answer.is_over:
            for each in await stream.next(60):
                answer.take(each)
                num_logprobs += len(each.logprobs) if isinstance(each, TokenOutput) else 0
            stream.grant(submit.id, len(answer.tokens) + 5, is_last=False)
    assert num_logprobs == len(answer.tokens) == 60


async def test_a_paused_generation_frees_its_slot_and_is_the_next_to_get_one(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine(max_running=1) as gateway:
        short = {**LONG, "max_new_tokens": 100}
        paused = gateway.submit("Count to 100.", num_granted=5, **short)
        # It must not end before the grant has arrived.
        first = gateway.submit("Count to 100.", **{**LONG, "max_new_tokens": 1200})
        others = [first, *(gateway.submit("Count to 100.", **short) for _ in range(2))]
        stream = gateway.start(paused, *others)
        answers = {submit.id: Answer() for submit in (paused, *others)}
        ended: list[int] = []
        while len(ended) < len(answers):
            for each in await stream.next(60):
                answers[each.id].take(each)
                if answers[each.id].is_over:
                    ended.append(each.id)
            if len(answers[first.id].tokens) > 0:
                stream.grant(paused.id, 100, is_last=False)
    assert ended == [first.id, paused.id, others[1].id, others[2].id]
    assert [len(answers[id_].tokens) for id_ in ended] == [1200, 100, 100, 100]


async def test_a_paused_generation_ends_with_its_last_grant(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 100.", num_granted=5, **LONG)
        stream, answer = gateway.start(submit), Answer()
        await gateway.read_until(stream, answer, 5)
        stream.grant(submit.id, 5, is_last=True)
        (rest,) = await gateway.finish(stream, submit)
    assert (len(answer.tokens), rest.tokens, rest.finish) == (5, [], FINISH_LENGTH)


async def test_a_paused_generation_has_a_deadline(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        submit = gateway.submit("Count to 100.", num_granted=5, **{**LONG, "deadline_s": 3.0})
        (answer,) = await gateway.ask(submit)
    assert len(answer.tokens) == 5
    assert answer.rejection is not None
    assert answer.rejection.code == DeadlineExceeded.code


async def test_a_paused_generation_can_be_cancelled(shared_engine: SharedEngine) -> None:
    async with shared_engine() as gateway:
        num_before = (await gateway.stats()).num_output_tokens
        submit = gateway.submit("Count to 100.", num_granted=5, **LONG)
        stream, answer = gateway.start(submit), Answer()
        await gateway.read_until(stream, answer, 5)
        stream.cancel({submit.id: 3})
        stats = await gateway.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_output_tokens - num_before == 3
