"""One key's requests are not felt by another beyond its fair share of a real engine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.conftest import Gateway, SharedEngine
from vinery_serving.transport.client import GenerationUpdate, OutputStream
from vinery_serving.transport.messages import (
    GrammarSpec,
    Rejected,
    SamplingParams,
    Submit,
    TokenOutput,
)

pytestmark = pytest.mark.live

GREEDY, NEIGHBOUR = (1, 1), (2, 2)


def long_prompts(gateway: Gateway, num: int, **values: object) -> list[Submit]:
    """Different prompts of 1,900 tokens each."""
    ids = np.random.default_rng(5).integers(300, 2900, (num, 1900)).tolist()
    values = {"max_new_tokens": 1, "ignore_eos": True, "lane": GREEDY, **values}
    return [gateway.submit(each, **values) for each in ids]


async def test_hundreds_of_long_prompts_do_not_delay_the_prompt_of_another_key(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine() as gateway:
        many = long_prompts(gateway, 60)
        neighbour = gateway.submit("hi", lane=NEIGHBOUR, max_new_tokens=1)
        stream = gateway.start(*many, neighbour)

        ended = await gateway.ids_before(stream, neighbour)
        stream.cancel({each.id: 0 for each in many})

        assert len(ended) <= 4, "the prompts in the first step, and the neighbour's"
        await gateway.stats_when_idle()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"sampling": SamplingParams(temperature=0.8, seed=3)},
        {"sampling": SamplingParams(frequency_penalty=0.4)},
        {"grammar": GrammarSpec("regex", "[0-9 ]{600}")},
    ],
    ids=["greedy", "sampled", "penalty", "grammar"],
)
async def test_a_key_that_holds_all_slots_yields_one_and_loses_no_token(
    shared_engine: SharedEngine, values: dict[str, object]
) -> None:
    async with shared_engine(max_running=2) as gateway:
        endless = [
            gateway.submit(
                f"Count to {number}.",
                **{"max_new_tokens": 500, "ignore_eos": True, "lane": GREEDY, **values},
            )
            for number in (30, 40, 50, 60)
        ]
        stream = gateway.start(*endless)
        num_tokens = dict.fromkeys([each.id for each in endless], 0)
        while max(num_tokens.values()) < 20:
            for update in await gateway.updates(stream):
                if isinstance(update, TokenOutput):
                    num_tokens[update.id] += len(update.token_ids)
        neighbours = [gateway.submit("hi", lane=NEIGHBOUR, max_new_tokens=3) for _ in range(2)]

        answers = await gateway.ask(*neighbours)

        assert all(answer.finish is not None for answer in answers)
        assert max(num_tokens.values()) < 500, "no slot was free"
        ended: set[int] = set()
        while len(ended) < len(endless):
            for update in await gateway.updates(stream):
                assert not isinstance(update, Rejected)
                if isinstance(update, TokenOutput):
                    num_tokens[update.id] += len(update.token_ids)
                    ended |= {update.id} if update.finish is not None else set()
        assert set(num_tokens.values()) == {500}


async def test_a_key_that_has_filled_its_part_of_the_queue_is_refused_and_another_is_not(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine(max_running=1, max_waiting=8) as gateway:
        many = [gateway.submit("Count to 60.", max_new_tokens=30, lane=GREEDY) for _ in range(2048)]
        neighbours = [gateway.submit("hi", lane=NEIGHBOUR, max_new_tokens=3) for _ in range(4)]

        answers = await gateway.ask(*many, *neighbours)

        refused = [answer for answer in answers if answer.rejection is not None]
        assert {answer.rejection.code for answer in refused if answer.rejection} == {"overloaded"}
        # An answer that ends while the others arrive makes room for one more.
        assert 2048 - 1 - 4 - 100 < len(refused) <= 2048 - 1 - 4
        assert all(answer.finish is not None for answer in answers[-4:])


async def test_where_the_queue_is_full_the_longest_lane_makes_room(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine(max_running=1, max_waiting=8) as gateway:
        lanes = [(number, number) for number in (1, 1, 1, 1, 1, 2, 2, 2, 2, 3)]
        submits = [gateway.submit("Count to 60.", max_new_tokens=30, lane=lane) for lane in lanes]

        answers = await gateway.ask(*submits)

        refused = [lanes[at] for at, each in enumerate(answers) if each.rejection is not None]
        assert len(refused) == 1
        assert refused[0] != (3, 3)


async def test_costly_patterns_of_one_key_do_not_hold_up_the_small_schema_of_another(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine() as gateway:
        costly = [
            gateway.submit(
                "hi",
                lane=GREEDY,
                grammar=GrammarSpec("regex", f"((a{{1,1000}}){{1,1000}}){{1,{500 + number}}}"),
            )
            for number in range(30)
        ]
        small = GrammarSpec("json_schema", '{"type": "object", "properties": {"a": {}}}')
        neighbour = gateway.submit("hi", lane=NEIGHBOUR, grammar=small, max_new_tokens=3)
        stream = gateway.start(*costly, neighbour)

        updates: list[GenerationUpdate] = []
        while neighbour.id not in [each.id for each in updates]:
            updates += await gateway.updates(stream)
        num_refused = sum(isinstance(each, Rejected) for each in updates)
        stream.cancel({each.id: 0 for each in costly})

        assert num_refused <= 2
        await gateway.stats_when_idle()


async def test_the_engine_reports_what_waits_and_how_fast_it_is_served(
    shared_engine: SharedEngine,
) -> None:
    async with shared_engine(max_running=1) as gateway:
        many = [
            gateway.submit("Count to 60.", max_new_tokens=40, ignore_eos=True, lane=lane)
            for lane in [GREEDY] * 12 + [NEIGHBOUR]
        ]
        stream = gateway.start(*many)
        seen: set[tuple[int, int]] = set()
        ended: set[int] = set()
        while len(ended) < len(many):
            for update in await gateway.updates(stream):
                if isinstance(update, TokenOutput) and update.finish is not None:
                    ended.add(update.id)
            load = gateway.client.load
            if load is not None and load.waiting:
                seen |= {(organization, key) for organization, key, _ in load.waiting}
                assert load.num_free == 0

        load = gateway.client.load
        assert load is not None
        assert seen >= {GREEDY}
        assert load.mean_tokens == pytest.approx(len(many[0].prompt_ids) / 4 + 40)
        while load is None or load.num_free < 1:
            await gateway.stats_when_idle()
            load = gateway.client.load
        assert load.waiting == ()


async def running_at_most(stream: OutputStream, gateway: Gateway, submits: list[Submit]) -> int:
    """Return how many generations had begun and not ended at the same time, until all end."""
    running: set[int] = set()
    ended: set[int] = set()
    most = 0
    while len(ended) < len(submits):
        for update in await gateway.updates(stream):
            assert not isinstance(update, Rejected)
            if isinstance(update, TokenOutput):
                running.add(update.id)
                if update.finish is not None:
                    running.discard(update.id)
                    ended.add(update.id)
            most = max(most, len(running))
    return most


@pytest.mark.parametrize(("is_strict", "expected"), [(False, 4), (True, 1)])
async def test_a_key_that_is_alone_may_use_the_whole_engine_unless_the_share_is_strict(
    shared_engine: SharedEngine, *, is_strict: bool, expected: int
) -> None:
    async with shared_engine(max_running=4, max_share=0.25, strict_share=is_strict) as gateway:
        many = [
            gateway.submit("Count to 60.", max_new_tokens=30, ignore_eos=True, lane=GREEDY)
            for _ in range(6)
        ]

        assert await running_at_most(gateway.start(*many), gateway, many) == expected
