"""The engine process as a gateway sees it: real process, real socket, real model."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from serving.node.engine_process import EngineDied
from serving.transport.client import EngineClient, EngineDisconnected
from serving.transport.messages import (
    EngineStats,
    GrammarSpec,
    Rejected,
    SamplingParams,
    TokenOutput,
)
from tests.engine.conftest import TIMEOUT_S, StartEngine

pytestmark = pytest.mark.live

PARIS = "The capital of France is Paris."


async def until_idle(client: EngineClient) -> EngineStats:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            stats = await client.ping(TIMEOUT_S)
            if stats.num_running == 0 and stats.num_waiting == 0:
                return stats


async def test_it_answers_from_the_model(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        (answer,) = await gateway.ask(gateway.submit("What is the capital of France?"))

        assert gateway.text(answer) == PARIS
        assert answer.finish == "stop"
        assert answer.num_cached_tokens == 0


async def test_64_streams_at_once_get_the_same_greedy_text(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        (alone,) = await gateway.ask(gateway.submit("Count to 20."))
        together = await gateway.ask(*[gateway.submit("Count to 20.") for _ in range(64)])

        assert {gateway.text(answer) for answer in together} == {gateway.text(alone)}


async def test_poisonous_requests_fail_alone_beside_32_streams(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        good = [gateway.submit("Count to 40.") for _ in range(32)]
        run = gateway.start(*good)
        poison = {
            "a grammar that cannot be compiled": gateway.submit(
                "hello", grammar=GrammarSpec("json_schema", '{"type": "nonsense"}')
            ),
            "a grammar that is not even JSON": gateway.submit(
                "hello", grammar=GrammarSpec("structural_tag", "{")
            ),
            "token ids beyond the vocabulary": gateway.submit([5, 1_000_000]),
            "negative token ids": gateway.submit([5, -1]),
            "stop ids beyond the vocabulary": gateway.submit(
                "hello", stop_token_ids=(1_000_000_000,), min_new_tokens=5
            ),
            "an oversized prompt": gateway.submit([5] * 5000),
            "an empty prompt": gateway.submit([]),
        }
        for what, submit in poison.items():
            (answer,) = await gateway.ask(submit)
            assert answer.rejection is not None, what
            assert answer.rejection.code in ("invalid_value", "invalid_grammar"), what
        answers = await gateway.finish(run, *good)

        assert {answer.finish for answer in answers} == {"stop"}
        assert len({gateway.text(answer) for answer in answers}) == 1
        assert (await gateway.client.ping(TIMEOUT_S)).num_recoveries == 0


async def test_a_grammar_too_costly_to_compile_is_stopped_and_its_neighbours_go_on(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        costly = GrammarSpec("regex", "((a{1,300}b{1,300}){1,300}|c){1,300}" * 8)
        neighbour = gateway.submit("Count to 40.")
        run = gateway.start(neighbour)
        (refused,) = await gateway.ask(gateway.submit("hello", grammar=costly))
        (answer,) = await gateway.finish(run, neighbour)
        (again,) = await gateway.ask(
            gateway.submit("hello", grammar=GrammarSpec("regex", "yes|no"), max_new_tokens=9)
        )

        assert refused.rejection is not None
        assert refused.rejection.code == "invalid_grammar"
        assert answer.finish == "stop"
        assert gateway.text(again) in ("yes", "no")


async def test_it_takes_only_as_many_as_may_run_and_wait(start_engine: StartEngine) -> None:
    async with start_engine(max_running=2, max_waiting=3) as gateway:
        submits = [gateway.submit("Count to 60.") for _ in range(9)]
        answers = await gateway.ask(*submits)

        refused = [answer for answer in answers if answer.rejection is not None]
        assert {answer.rejection.code for answer in refused if answer.rejection} == {"overloaded"}
        assert len(refused) == 9 - 2 - 3
        served = [answer for answer in answers if answer.finish is not None]
        assert len({gateway.text(answer) for answer in served}) == 1


async def test_no_more_run_at_once_than_may(start_engine: StartEngine) -> None:
    async with start_engine(max_running=3) as gateway:
        submits = [gateway.submit("Count to 60.") for _ in range(12)]
        run = gateway.start(*submits)
        await run.next(TIMEOUT_S)
        stats = await gateway.client.ping(TIMEOUT_S)
        await gateway.finish(run, *submits)

        assert stats.num_running <= 3


async def test_of_those_that_wait_the_lowest_priority_number_is_admitted_first(
    start_engine: StartEngine,
) -> None:
    async with start_engine(max_running=1) as gateway:
        running = gateway.submit("Count to 60.")
        priorities = (7, 0, 7, 3, 0)
        waiting = [
            gateway.submit("What is the capital of France?", priority=priority)
            for priority in priorities
        ]
        run = gateway.start(running, *waiting)
        finished: list[int] = []
        while len(finished) <= len(waiting):
            said = await run.next(TIMEOUT_S)
            finished += [each.id for each in said if isinstance(each, TokenOutput) and each.finish]

        assert finished == [running.id, *(waiting[at].id for at in (1, 4, 3, 0, 2))]


async def test_a_cancelled_generation_frees_its_slot(start_engine: StartEngine) -> None:
    async with start_engine(max_running=1) as gateway:
        endless = gateway.submit("Count to 60.", max_new_tokens=2000)
        run = gateway.start(endless)
        await run.next(TIMEOUT_S)
        run.cancel({endless.id: 0})

        (answer,) = await gateway.ask(gateway.submit("What is the capital of France?"))

        assert gateway.text(answer) == PARIS
        await until_idle(gateway.client)


async def test_a_gateway_that_dies_frees_all_its_slots(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        other = EngineClient(gateway.client.path)
        other.open()
        await other.wait_connected(TIMEOUT_S)
        run = other.submit([gateway.submit("Count to 60.", max_new_tokens=2000) for _ in range(9)])
        await run.next(TIMEOUT_S)
        await other.close()

        stats = await until_idle(gateway.client)

        assert stats.num_running == 0
        with pytest.raises(EngineDisconnected):
            while True:
                await run.next(TIMEOUT_S)


async def test_a_generation_past_its_deadline_is_told_so(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        late = gateway.submit("Hi", max_new_tokens=2000, ignore_eos=True, deadline_s=0.01)
        (answer,) = await gateway.ask(late)

        assert answer.rejection is not None
        assert answer.rejection.code == "deadline_exceeded"
        await until_idle(gateway.client)


async def test_one_seed_gives_one_text_and_two_seeds_two(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:

        async def poem(seed: int) -> list[int]:
            sampling = SamplingParams(temperature=1.8, seed=seed)
            submit = gateway.submit("Write a poem.", sampling=sampling, max_new_tokens=60)
            (answer,) = await gateway.ask(submit)
            return answer.tokens

        # One after the other: in one batch, rounding may differ between its rows.
        first, same, other = await poem(7), await poem(7), await poem(8)

        assert first == same
        assert first != other


async def test_an_unloaded_engine_tells_its_running_generations(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        submit = gateway.submit("Count to 60.", max_new_tokens=2000)
        run = gateway.start(submit)
        await run.next(TIMEOUT_S)
        assert gateway.process.pid is not None
        os.kill(gateway.process.pid, signal.SIGTERM)

        (answer,) = await gateway.finish(run, submit)

        assert answer.rejection is not None
        assert answer.rejection.code == "model_not_ready"


async def test_an_engine_that_loses_its_node_loses_its_generations_and_refuses_none(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        run = gateway.start(gateway.submit("Count to 60.", max_new_tokens=2000, ignore_eos=True))
        await run.next(TIMEOUT_S)
        node_end = gateway.process._process
        assert node_end is not None and node_end.stdin is not None
        node_end.stdin.close()

        with pytest.raises(EngineDisconnected):
            while True:
                said = await run.next(TIMEOUT_S)
                assert said
                assert not any(isinstance(each, Rejected) for each in said)


async def test_a_killed_engine_is_told_to_whoever_waits(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        run = gateway.start(gateway.submit("Count to 60.", max_new_tokens=2000))
        await run.next(TIMEOUT_S)
        assert gateway.process.pid is not None
        os.kill(gateway.process.pid, signal.SIGKILL)

        with pytest.raises(EngineDisconnected):
            while True:
                await run.next(TIMEOUT_S)
        with pytest.raises(EngineDied, match="status -9"):
            await gateway.process.watch()


async def test_an_engine_that_hangs_in_a_step_is_killed(start_engine: StartEngine) -> None:
    async with start_engine(step_timeout_s=0.5) as gateway:
        assert gateway.process.pid is not None
        os.kill(gateway.process.pid, signal.SIGSTOP)

        with pytest.raises(EngineDied, match=r"longer than 0\.5 s"):
            await gateway.process.watch()


async def test_an_engine_that_dies_while_it_is_looked_for_is_not_waited_for(
    start_engine: StartEngine,
) -> None:
    async with start_engine(step_timeout_s=600.0) as gateway:
        watching = asyncio.create_task(gateway.process.watch())
        # As when its socket is closed already, and its end not told yet.
        await gateway.process._client.close()
        await asyncio.sleep(1.5)
        assert not watching.done()
        assert gateway.process.pid is not None
        os.kill(gateway.process.pid, signal.SIGKILL)

        with pytest.raises(EngineDied, match="status -9"):
            await asyncio.wait_for(watching, TIMEOUT_S)


async def test_an_engine_that_is_gone_when_it_is_to_be_killed_has_died(
    start_engine: StartEngine,
) -> None:
    async with start_engine(step_timeout_s=0.1) as gateway:
        await gateway.process._client.close()
        assert gateway.process.pid is not None
        os.kill(gateway.process.pid, signal.SIGKILL)
        assert gateway.process._process is not None
        await gateway.process._process.wait()

        with pytest.raises(EngineDied, match="longer than"):
            await gateway.process._ping()


async def test_nonsense_on_the_socket_hurts_only_who_sends_it(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        reader, writer = await asyncio.open_unix_connection(str(gateway.client.path))
        writer.write(b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n")
        await writer.drain()
        await reader.read()  # until the engine closes it

        (answer,) = await gateway.ask(gateway.submit("What is the capital of France?"))

        assert gateway.text(answer) == PARIS


EOS = 2


async def test_no_end_token_is_drawn_before_the_least_number_of_tokens(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        usual, longer = await gateway.ask(
            gateway.submit("Count to 5."), gateway.submit("Count to 5.", min_new_tokens=40)
        )
        stopped, later = await gateway.ask(
            gateway.submit("Count to 30.", stop_token_ids=(usual.tokens[2],)),
            gateway.submit("Count to 30.", stop_token_ids=(usual.tokens[2],), min_new_tokens=20),
        )

    assert usual.tokens[-1] == EOS
    assert len(usual.tokens) < 40 <= len(longer.tokens)
    assert EOS not in longer.tokens[:40]
    assert stopped.finish == "stop"
    assert len(stopped.tokens) == 3
    assert len(later.tokens) > 20


async def test_a_generation_that_ignores_end_tokens_goes_on_to_its_limit(
    start_engine: StartEngine,
) -> None:
    async with start_engine() as gateway:
        (answer,) = await gateway.ask(
            gateway.submit("Count to 5.", ignore_eos=True, stop_token_ids=(EOS,), max_new_tokens=50)
        )

    assert answer.finish == "length"
    assert len(answer.tokens) == 50
    assert EOS in answer.tokens[:-1]
