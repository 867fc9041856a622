"""The end of a web process, with tasks instead of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from vinery_serving.core.errors import ShuttingDown
from vinery_serving.gateway.state import drain as drain_module
from vinery_serving.gateway.state.drain import Drain


async def answer(drain: Drain, may_end: asyncio.Event) -> str:
    """A request that ends after `may_end`, or with the error of an ending process."""
    drain.enter()
    try:
        await may_end.wait()
    except asyncio.CancelledError:
        return "left" if drain.ending is None else drain.ending.code or ""
    finally:
        drain.leave()
    return "whole"


@asynccontextmanager
async def running(drain: Drain) -> AsyncIterator[tuple[asyncio.Task[str], asyncio.Event]]:
    may_end = asyncio.Event()
    task = asyncio.create_task(answer(drain, may_end))
    await asyncio.sleep(0)
    yield task, may_end
    task.cancel()


async def test_running_requests_are_answered_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "_POLL_S", 0.0)
    drain = Drain()
    async with running(drain) as (request, may_end):
        drain.begin()
        ending = asyncio.create_task(drain.finish(limit_s=600))
        for _ in range(20):  # turns of its loop
            await asyncio.sleep(0)
        assert not ending.done()

        may_end.set()
        await ending

        assert await request == "whole"


async def test_requests_end_with_an_error_at_the_limit_unless_their_clients_have_left() -> None:
    for limit_s, num_signals in ((0.0, 1), (600.0, 2)):
        drain = Drain()
        async with running(drain) as (request, _):
            drain.begin()
            ending = asyncio.create_task(drain.finish(limit_s))
            await asyncio.sleep(0)
            for _ in range(num_signals - 1):
                drain.begin()
            await ending
            assert await request == ShuttingDown.code

    drain = Drain()
    async with running(drain) as (request, _):
        drain.begin()

        request.cancel()

        assert await request == "left"

    drain = Drain()
    drain.begin()
    await drain.finish(limit_s=600)
