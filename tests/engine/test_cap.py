"""A generation can be told, while it runs, after how many tokens it has to end."""

from __future__ import annotations

from typing import Any

import pytest

from serving.transport.messages import FINISH_LENGTH, BeamSpec, SamplingParams, TokenOutput
from tests.engine.conftest import StartEngine

pytestmark = pytest.mark.live
LONG: dict[str, Any] = {"max_new_tokens": 400, "ignore_eos": True}


async def test_it_ends_at_exactly_that_token(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", **LONG)
        beside = gateway.submit("Count to 100.", **LONG)
        run = gateway.start(submit, beside)
        run.cap(submit.id, 150)
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
        run.cap(submit.id, 10)
        (answer,) = await gateway.finish(run, submit)
        stats = await gateway.client.ping(60)
    assert answer.finish == FINISH_LENGTH
    assert 20 <= num_made + len(answer.tokens) < 1500
    assert stats.num_running == 0


async def test_one_that_waits_for_a_place_can_be_ended(start_engine: StartEngine) -> None:
    async with start_engine(max_running=1) as gateway:
        running, waiting = (gateway.submit("Count to 100.", **LONG) for _ in range(2))
        run = gateway.start(running, waiting)
        run.cap(waiting.id, 0)
        answer, none = await gateway.finish(run, running, waiting)
    assert len(answer.tokens) == 400
    assert (none.tokens, none.finish) == ([], FINISH_LENGTH)


async def test_a_higher_cap_than_its_own_limit_changes_nothing(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 100.", max_new_tokens=7)
        run = gateway.start(submit)
        run.cap(submit.id, 1000)
        run.cap(12345, 1)
        (answer,) = await gateway.finish(run, submit)
    assert len(answer.tokens) == 7


async def test_tokens_proposed_ahead_do_not_pass_it(start_engine: StartEngine) -> None:
    async with start_engine(prompt_lookup=True) as gateway:
        submit = gateway.submit("Count to 100.", sampling=SamplingParams(), **LONG)
        run = gateway.start(submit)
        run.cap(submit.id, 101)
        (answer,) = await gateway.finish(run, submit)
    assert (len(answer.tokens), answer.finish) == (101, FINISH_LENGTH)


async def test_a_search_by_beams_goes_on(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 9.", max_new_tokens=12, beams=BeamSpec(2))
        run = gateway.start(submit)
        run.cap(submit.id, 3)
        (answer,) = await gateway.finish(run, submit)
    assert len(answer.tokens) == 12
