"""Engines of other hosts, through the relays of these hosts."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cluster.hosts import ENGINE, NODE_HOST, WEB_HOST, Host, running, web_key
from tests.fakes.engine import FakeEngine, Gateway, Script
from vinery_serving.cluster.authority import Role, host_fingerprint
from vinery_serving.cluster.relay import Relay, note_hosts
from vinery_serving.core.request import Sampling
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.handshake import Stranger
from vinery_serving.transport.messages import Submit, TokenOutput
from vinery_serving.transport.relayed import Key
from vinery_serving.transport.sockets import TlsAddress, UnixAddress

TIMEOUT_S = 60
NUM_TOKENS = 50


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with running(tmp_path) as host:
        yield host


@contextlib.asynccontextmanager
async def connected(
    address: TlsAddress | UnixAddress, key: bytes | Key
) -> AsyncIterator[EngineClient]:
    client = EngineClient(address, key)
    client.open()
    try:
        await client.wait_connected(TIMEOUT_S)
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def attached(host: Host, script: Script) -> AsyncIterator[EngineClient]:
    async with (
        FakeEngine(host.socket_of(), script, key=host.key_of()),
        connected(host.engine(), web_key()) as client,
    ):
        yield client


async def count(gateway: Gateway) -> None:
    """Answer each request with numbers, in frames of many sizes."""
    while True:
        submit = await gateway.receive_submit()
        gateway.accept(submit)
        for number in range(NUM_TOKENS):
            is_last = number == NUM_TOKENS - 1
            gateway.tokens(submit, [number] * (number * number), "stop" if is_last else None)
            await asyncio.sleep(0)


async def say_nothing(gateway: Gateway) -> None:
    while True:
        gateway.accept(await gateway.receive_submit())


async def die(gateway: Gateway) -> None:
    gateway.accept(await gateway.receive_submit())
    gateway.die()


def submitted(client: EngineClient, prompt: bytes = b"") -> Submit:
    return Submit(client.new_id(), prompt, Sampling(), 9, 60.0)


async def answer_of(client: EngineClient, prompt: bytes = b"") -> list[int]:
    stream, found = client.submit([submitted(client, prompt)]), []
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for update in await stream.next():
                if isinstance(update, TokenOutput):
                    found += update.token_ids
                    if update.finish:
                        return found


async def end_of(client: EngineClient) -> EngineDisconnected:
    """How a request without an answer ends."""
    stream = client.submit([submitted(client)])
    with pytest.raises(EngineDisconnected) as ended:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                await stream.next()
    return ended.value


async def is_refused(address: TlsAddress, key: Key) -> bool:
    """Whether the relay, or this end, closes the connection without a word of the engine."""
    client = EngineClient(address, key)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                link = await client._connect()
                await link.hello
            except TimeoutError:  # on a busy machine
                continue
            except (OSError, Stranger, EngineDisconnected):
                return True
            return False


def rss_of(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


async def test_an_answer_is_the_same_as_on_the_host_itself(host: Host) -> None:
    prompt = bytes(range(256)) * 20_000  # of many parts
    async with FakeEngine(host.socket_of(), count, key=host.key_of()):
        async with connected(UnixAddress(host.socket_of()), host.key_of()) as client:
            here = await answer_of(client, prompt)
        async with connected(host.engine(), web_key()) as client:
            assert await answer_of(client, prompt) == here
            assert client.num_generations == 0


async def test_an_engine_that_ends_may_have_crashed(host: Host) -> None:
    async with attached(host, die) as client:
        assert not (await end_of(client)).is_planned


async def test_a_relay_that_is_killed_blames_no_request(host: Host) -> None:
    async with attached(host, say_nothing) as client:
        ending = asyncio.create_task(end_of(client))
        await asyncio.sleep(0.1)
        await host.kill()
        assert (await ending).is_planned


async def test_a_host_that_stands_still_is_noticed(host: Host) -> None:
    async with attached(host, say_nothing) as client:
        host.stop()
        assert (await end_of(client)).is_planned
        assert not client.is_running


async def test_who_is_refused(host: Host) -> None:
    host.know(WEB_HOST, NODE_HOST)
    async with FakeEngine(host.socket_of(), count, key=host.key_of()):
        for key in (
            web_key(authority=b"of another installation"),
            web_key(role=Role.NODE),
            web_key(host="of a host that is not in the directory"),
        ):
            assert await is_refused(host.engine(), key)
        others = TlsAddress("127.0.0.2", host.port, host_fingerprint(WEB_HOST), ENGINE)
        assert await is_refused(others, web_key())  # another host answers there
        missing = replace(host.engine(), engine=ENGINE._replace(replica=1))
        assert await is_refused(missing, web_key())
        async with connected(host.engine(), web_key()) as client:
            assert await answer_of(client)


async def test_a_removed_host_loses_its_connections_and_gets_no_more(host: Host) -> None:
    async with attached(host, say_nothing) as client:
        ending = asyncio.create_task(end_of(client))
        host.know(NODE_HOST)
        assert (await ending).is_planned
        assert await is_refused(host.engine(), web_key())


async def test_a_slow_reader_costs_the_relay_no_memory(host: Host) -> None:
    """The relay stops reading, so the engine buffers, which has a limit. A peer that reads nothing
    for 10 s is disconnected."""
    flooded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def flood(gateway: Gateway) -> None:
        submit = await gateway.receive_submit()
        transport = gateway._writer.transport
        for _ in range(640):
            gateway.tokens(submit, [1] * 100_000)
            await asyncio.sleep(0.001)
            is_held = transport.get_write_buffer_size() > 2**25 or transport.is_closing()
            if is_held:
                break
        flooded.set_result(is_held)

    async with FakeEngine(host.socket_of(), flood, key=host.key_of()):
        link = await EngineClient(host.engine(), web_key())._connect()
        await link.hello
        before = rss_of(host.pid)
        link.submit([Submit(1, b"", Sampling(), 9, 60.0)])
        link._transport.pause_reading()
        async with asyncio.timeout(TIMEOUT_S):
            assert await flooded
        assert rss_of(host.pid) - before < 2**24
        link.close()


def test_an_unknown_host_that_comes_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(tmp_path, b"", cast("Any", None))
    remote = cast("Any", SimpleNamespace(fingerprint="ab" * 32))
    for num_logged in (1, 1):
        with pytest.raises(Stranger):
            relay._check(remote)
        assert caplog.text.count("unknown host") == num_logged

    note_hosts(tmp_path, [remote.fingerprint])
    relay._check(remote)
    note_hosts(tmp_path, [])
    with pytest.raises(Stranger):
        relay._check(remote)
    assert caplog.text.count("unknown host") == 2
