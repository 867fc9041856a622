"""The engine process as a gateway sees it: a real process, socket and model."""

import asyncio
import signal
import sys
import time
from typing import Any

import psutil
import pytest

from tests.conftest import until_in_loop as until
from tests.engine.conftest import TIMEOUT_S, Answer, Gateway, OwnGateway, StartEngine
from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.node.engine_process import EngineDied
from vinery_serving.transport.client import EngineClient, EngineDisconnected, OutputStream
from vinery_serving.transport.messages import GrammarSpec, LogitsSpec, Rejected, TokenOutput

pytestmark = pytest.mark.live

QUESTION, PARIS = "What is the capital of France?", "The capital of France is Paris."
EOS = 2


@pytest.mark.smoke
async def test_it_answers_from_the_model_and_otherwise_for_another_seed(gateway: Gateway) -> None:
    (answer,) = await gateway.ask(gateway.submit(QUESTION))
    assert gateway.text(answer) == PARIS
    assert answer.finish == "stop"
    assert answer.num_cached_tokens is not None

    async def poem(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.8, seed=seed)
        submit = gateway.submit("Write a poem.", sampling=sampling, max_new_tokens=60)
        (answer,) = await gateway.ask(submit)
        return answer.tokens

    # One after the other: in one batch, rounding may differ between rows.
    first, same, other = await poem(7), await poem(7), await poem(8)

    assert first == same
    assert first != other


async def test_an_engine_without_a_configuration_ends() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vinery_serving.engine", "e"), stdin=asyncio.subprocess.PIPE
    )
    await asyncio.wait_for(process.communicate(b'{"name": "half a'), 60)
    assert process.returncode == 1


@pytest.mark.smoke
async def test_invalid_and_costly_requests_fail_alone_beside_64_streams(gateway: Gateway) -> None:
    num_recoveries = (await gateway.stats()).num_recoveries
    (alone,) = await gateway.ask(gateway.submit("Count to 40."))
    good = [gateway.submit("Count to 40.") for _ in range(64)]
    stream = gateway.start(*good)
    nonsense = GrammarSpec("json_schema", '{"type": "nonsense"}')
    no_json = GrammarSpec("structural_tag", "{")
    invalid = {
        "a grammar that cannot be compiled": gateway.submit("hello", grammar=nonsense),
        "one that is not even JSON": gateway.submit("hello", grammar=no_json),
        "token ids beyond the vocabulary": gateway.submit([5, 1_000_000]),
        "negative token ids": gateway.submit([5, -1]),
        "stop ids beyond it": gateway.submit("hello", stop_token_ids=(10**9,), min_new_tokens=5),
        "an oversized prompt": gateway.submit([5] * 5000),
        "an empty prompt": gateway.submit([]),
    }
    for name, submit in invalid.items():
        (answer,) = await gateway.ask(submit)
        assert answer.rejection is not None, name
        assert answer.rejection.code in ("invalid_value", "invalid_grammar"), name
    answers = await gateway.finish(stream, *good)

    assert {answer.finish for answer in answers} == {"stop"}
    assert {gateway.text(answer) for answer in answers} == {gateway.text(alone)}
    assert (await gateway.stats()).num_recoveries == num_recoveries

    costly = GrammarSpec("regex", "((a{1,300}b{1,300}){1,300}|c){1,300}" * 8)
    neighbour = gateway.submit("Count to 40.")
    stream = gateway.start(neighbour)
    (refused,) = await gateway.ask(gateway.submit("hello", grammar=costly))
    (answer,) = await gateway.finish(stream, neighbour)
    (again,) = await gateway.ask(
        gateway.submit("hello", grammar=GrammarSpec("regex", "yes|no"), max_new_tokens=9)
    )

    assert refused.rejection.code == "invalid_grammar"
    weaker = GrammarSpec("regex", "yes|no", unenforced="a, b")
    costly = GrammarSpec(costly.kind, costly.source, weaker)
    (loose,) = await gateway.ask(gateway.submit("hello", grammar=costly, max_new_tokens=9))
    assert gateway.text(loose) in ("yes", "no")
    assert loose.unenforced == "a, b"
    assert answer.finish == "stop"
    assert gateway.text(again) in ("yes", "no")


async def test_a_dead_or_invalid_gateway_and_a_late_request_end_alone(gateway: Gateway) -> None:
    other = EngineClient(gateway.client.address, gateway.client.key)
    other.open()
    await other.wait_connected(TIMEOUT_S)
    stream = other.submit([gateway.submit("Count to 60.", max_new_tokens=2000) for _ in range(9)])
    await stream.next(TIMEOUT_S)
    await other.close()

    stats = await gateway.stats_when_idle()

    assert stats.num_running == 0
    with pytest.raises(EngineDisconnected):
        while True:
            await stream.next(TIMEOUT_S)

    late = gateway.submit("Hi", max_new_tokens=2000, ignore_eos=True, deadline_s=0.01)
    (answer,) = await gateway.ask(late)
    assert answer.rejection.code == "deadline_exceeded"
    await gateway.stats_when_idle()

    reader, writer = await asyncio.open_unix_connection(str(gateway.client.path))
    writer.write(b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n" * 3)
    await writer.drain()
    await reader.read()  # until the engine closes it
    (answer,) = await gateway.ask(gateway.submit(QUESTION))
    assert gateway.text(answer) == PARIS


async def test_tokens_that_a_dead_gateway_had_no_use_for_do_not_count(gateway: Gateway) -> None:
    before = await gateway.stats_when_idle()
    other = EngineClient(gateway.client.address, gateway.client.key)
    other.open()
    await other.wait_connected(TIMEOUT_S)
    submits = [gateway.submit("Count to 60.", max_new_tokens=2000) for _ in range(9)]
    stream = other.submit(submits)
    while not any(isinstance(each, TokenOutput) for each in await stream.next(TIMEOUT_S)):
        pass
    stream.cancel({each.id: 0 for each in submits})
    await other.close()  # before the engine has read that: it sends the tokens of a step first

    stats = await gateway.stats_when_idle()

    assert stats.tokens.num_output_tokens == before.tokens.num_output_tokens
    assert stats.num_unused_tokens > before.num_unused_tokens


async def lost(stream: OutputStream) -> EngineDisconnected:
    """Return the error of a stream whose engine ends."""
    with pytest.raises(EngineDisconnected) as error:
        while True:
            updates = await stream.next(TIMEOUT_S)
            assert updates
            assert not any(isinstance(each, Rejected) for each in updates)
    return error.value


async def begun(gateway: OwnGateway, **values: Any) -> tuple[OutputStream, Any]:
    """A stream that has begun, and would go on for long or for as many tokens as are granted."""
    submit = gateway.submit("Count to 60.", max_new_tokens=2000, ignore_eos=True, **values)
    stream = gateway.start(submit)
    await gateway.read_until(stream, Answer(), 1)
    return stream, submit


async def test_streams_know_that_an_end_was_planned(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        stream, _ = await begun(gateway, num_granted=5)
        gateway.send_signal(signal.SIGTERM)
        assert (await lost(stream)).is_planned


@pytest.mark.smoke
async def test_a_kill_ends_all_streams_and_leaves_no_files(start_engine, tmp_path, monkeypatch):
    system, own = tmp_path / "system", tmp_path / "e.tmp"
    system.mkdir()
    monkeypatch.setenv("TMPDIR", str(system))
    own.mkdir()
    (own / "of an engine whose node was killed, too").touch()
    async with start_engine() as gateway:
        grammar = GrammarSpec("regex", "yes|no")
        await gateway.ask(gateway.submit("hello", grammar=grammar, max_new_tokens=9))
        assert list(own.iterdir()) == []
        stream, _ = await begun(gateway, num_granted=5)
        gateway.send_signal(signal.SIGKILL)

        assert not (await lost(stream)).is_planned
        with pytest.raises(EngineDied, match="status -9"):
            await gateway.process.watch()

    assert not own.exists()
    assert list(system.iterdir()) == []


async def test_an_engine_in_a_step_without_end_is_ended(start_engine, caplog):
    endless = "tests.system.logits_processors:endless"
    async with start_engine(step_timeout_s=600.0, logits_processors=[endless]) as gateway:
        watching = asyncio.create_task(gateway.process.watch())
        # The engine learns how long such steps take.
        for _ in range(3):
            await gateway.ask(gateway.submit("Count to 10."))
        endless = LogitsSpec(processor_args={"endless": True})
        gateway.start(gateway.submit("Count to 10.", logits=endless))

        with pytest.raises(EngineDied, match=r"stood still .*: without a sign of life"):
            await asyncio.wait_for(watching, 3 * TIMEOUT_S)
    assert "logits_processors.py" in caplog.text, "the stacks are not in the log"


async def test_no_end_token_is_sampled_before_min_new_tokens(gateway: Gateway) -> None:
    usual, longer, endless = await gateway.ask(
        gateway.submit("Count to 5."),
        gateway.submit("Count to 5.", min_new_tokens=40),
        gateway.submit("Count to 5.", ignore_eos=True, stop_token_ids=(EOS,), max_new_tokens=50),
    )
    stop_ids = (usual.tokens[2],)
    stopped, later = await gateway.ask(
        gateway.submit("Count to 30.", stop_token_ids=stop_ids),
        gateway.submit("Count to 30.", stop_token_ids=stop_ids, min_new_tokens=20),
    )

    assert usual.tokens[-1] == EOS
    assert len(usual.tokens) < 40 <= len(longer.tokens)
    assert EOS not in longer.tokens[:40]
    assert (endless.finish, len(endless.tokens)) == ("length", 50)
    assert EOS in endless.tokens[:-1]
    assert (stopped.finish, len(stopped.tokens)) == ("stop", 3)
    assert len(later.tokens) > 20


async def test_it_shows_since_when_it_is_idle_but_no_options(start_engine: StartEngine) -> None:
    async with start_engine(max_running=37) as gateway:
        process = gateway.process
        # The engine connects a moment before it reports to be idle.
        await until(lambda: process.idle_since_s is not None)
        loaded_at_s = process.idle_since_s
        (answer,) = await gateway.ask(gateway.submit("Count to 20."))
        await until(lambda: process.idle_since_s not in (None, loaded_at_s))
        idle_since_s = process.idle_since_s
        words = psutil.Process(process.pid).cmdline()

    assert loaded_at_s < idle_since_s <= time.monotonic()
    assert answer.num_cached_tokens == 0, "it is the first of this engine"
    assert words[1:] == ["-m", "vinery_serving.engine", "tiny-chat", "text"]


async def test_it_drains_what_it_has_and_gets_no_new_requests(start_engine: StartEngine) -> None:
    async with start_engine() as gateway:
        stream, running = await begun(gateway, num_granted=5)
        assert gateway.process.idle_since_s is None
        late = gateway.submit("Count to 20.")

        gateway.process.drain()
        late_stream = gateway.start(late)  # before this gateway hears of it
        await until(lambda: not gateway.client.is_connected)
        with pytest.raises(EngineDisconnected):
            gateway.start(gateway.submit("Count to 20."))
        other = EngineClient(gateway.client.address, gateway.client.key)
        other.open()
        await until(lambda: other.hello is not None)
        assert not other.is_connected
        await other.close()

        stream.grant(running.id, 30, is_last=True)
        (first,) = await gateway.finish(stream, running)
        (second,) = await gateway.finish(late_stream, late)
        with pytest.raises(EngineDied, match="status 0"):
            await gateway.process.watch()

    assert (first.finish, second.finish) == ("length", "stop")


@table("options", [{}, {"prompt_lookup": True}])
async def test_it_reports_its_speeds_waits_caches_and_draft_tokens(shared_engine, options):
    async with shared_engine(**options) as gateway:
        submits = [gateway.submit("Count to 60.", max_new_tokens=200) for _ in range(2)]
        for each in submits:
            await gateway.ask(each)

        stats = await gateway.stats_when_idle()

    assert stats.output_tokens_per_s > 0
    assert stats.prompt_tokens_per_s > 0
    assert stats.first_token_s is not None
    assert 0 < stats.inter_token_s[0] <= stats.inter_token_s[1]
    assert stats.prefix_hit_rate is not None
    assert (stats.tokens.num_proposed_tokens > 0) == bool(options)
    assert 0 <= stats.tokens.num_accepted_tokens <= stats.tokens.num_proposed_tokens
    assert (stats.draft_acceptance is not None) == bool(options)
