"""A request of many long prompts does not hold up the messages of others to the engine."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.fakes.engine import KEY, FakeEngine, Gateway
from vinery_serving.core.request import Sampling
from vinery_serving.transport import messages
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.sockets import UnixAddress, pack

NUM_PROMPTS = 600
TIMEOUT_S = 30


class SlowEngine:
    """An engine that reads nothing until the test allows all."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.received: list[msgspec.Struct] = []
        self._has_news = asyncio.Event()

    async def __call__(self, gateway: Gateway) -> None:
        await self.may_read.wait()
        while True:
            self.received.append(await gateway.receive())
            self._has_news.set()

    async def until(self, is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_done():
                self._has_news.clear()
                await self._has_news.wait()

    async def until_submitted(self, id_: int) -> None:
        """Let the engine read until this submission has come."""
        self.may_read.set()
        await self.until(lambda: id_ in self.ids())

    def ids(self) -> list[int]:
        """The ids of the submissions, in the order of their arrival."""
        return [each.id for each in self.received if isinstance(each, messages.Submit)]


@pytest.fixture
def slow() -> SlowEngine:
    return SlowEngine()


@pytest.fixture
async def client(slow: SlowEngine, tmp_path: Path) -> AsyncIterator[EngineClient]:
    client = EngineClient(UnixAddress(tmp_path / "engine.sock"), KEY)
    async with FakeEngine(client.path, slow):
        client.open()
        await client.wait_connected(TIMEOUT_S)
        yield client
        await client.close()


def submit(client: EngineClient, prompt: bytes, **values: Any) -> messages.Submit:
    return messages.Submit(client.new_id(), prompt, Sampling(), 1, 60.0, **values)


def prompts(client: EngineClient, num: int) -> list[messages.Submit]:
    return [submit(client, bytes(8000)) for _ in range(num)]


async def test_other_requests_overtake_the_rest_of_a_large_one(slow, client):
    many, large, other = (prompts(client, num) for num in (NUM_PROMPTS, NUM_PROMPTS // 4, 1))
    sending = [asyncio.create_task(client.submit(each).send_rest()) for each in (many, large)]
    await asyncio.sleep(0)
    client.submit(other)

    await slow.until_submitted(many[-1].id)
    await asyncio.gather(*sending)

    assert slow.ids().index(other[0].id) < NUM_PROMPTS // 4
    assert slow.ids().index(large[-1].id) < NUM_PROMPTS
    own = {each.id for each in many}
    assert [id_ for id_ in slow.ids() if id_ in own] == [each.id for each in many]


async def test_what_was_cancelled_is_not_sent(slow: SlowEngine, client: EngineClient) -> None:
    many, last = prompts(client, NUM_PROMPTS), prompts(client, 1)
    output = client.submit(many)
    sending = asyncio.create_task(output.send_rest())
    await asyncio.sleep(0)
    output.cancel({each.id: 0 for each in many})
    client.submit(last)

    await slow.until_submitted(last[0].id)
    await sending

    assert len(slow.ids()) < NUM_PROMPTS // 4
    assert messages.Cancel(many[0].id, 0) in slow.received


# Pictures


def with_picture(client: EngineClient, num_bytes: int = 12 * 2**20) -> messages.Submit:
    pixels = os.urandom(1024) * (num_bytes >> 10)
    picture = messages.MediaInput(0, (1, 1, 1), 1, num_bytes // 3, pixels=pixels)
    return submit(client, bytes(8), media=(picture,))


def pixels_of(slow: SlowEngine, id_: int) -> bytes:
    parts = [
        each for each in slow.received if isinstance(each, messages.MediaPixels) and each.id == id_
    ]
    return b"".join(part.pixels for part in parts)


async def test_pixels_come_before_their_submission(slow: SlowEngine, client: EngineClient) -> None:
    submit, other = with_picture(client), prompts(client, 1)[0]
    sending = asyncio.create_task(client.submit([submit]).send_rest())
    client.submit([other])

    await slow.until_submitted(submit.id)
    await sending

    assert slow.ids() == [other.id, submit.id]
    assert pixels_of(slow, submit.id) == submit.media[0].pixels
    bare = structs.replace(submit.media[0], pixels=b"")
    assert slow.received[-1] == structs.replace(submit, media=(bare,))
    assert all(len(pack(each)) < 2 * 65536 for each in slow.received)


async def test_a_picture_that_is_cancelled_on_its_way_is_given_up(slow, client):
    submit = with_picture(client)
    client.submit([submit]).cancel({submit.id: 0})  # the first part is written
    last = prompts(client, 1)
    client.submit(last)

    await slow.until_submitted(last[0].id)

    assert slow.ids() == [last[0].id]
    assert 0 < len(pixels_of(slow, submit.id)) < len(submit.media[0].pixels) // 4
    assert messages.Cancel(submit.id, 0) in slow.received
