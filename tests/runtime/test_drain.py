"""The end of a web process, with tasks instead of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vinery_serving.core.errors import ShuttingDown
from vinery_serving.runtime.drain import Drain


async def answer(drain: Drain, may_end: asyncio.Event) -> str:
    """A request that ends when it may, or with the error of a process that ends."""
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


async def test_requests_that_run_are_answered_before_the_end() -> None:
    drain = Drain()
    async with running(drain) as (request, may_end):
        drain.begin()
        ending = asyncio.create_task(drain.finish(limit_s=600))
        await asyncio.sleep(0.15)
        assert not ending.done()

        may_end.set()
        await ending

        assert await request == "whole"


async def test_requests_that_take_longer_than_the_limit_end_with_an_error() -> None:
    drain = Drain()
    async with running(drain) as (request, _):
        drain.begin()

        await drain.finish(limit_s=0.0)

        assert await request == ShuttingDown.code


async def test_a_second_signal_ends_requests_before_the_limit() -> None:
    drain = Drain()
    async with running(drain) as (request, _):
        drain.begin()
        ending = asyncio.create_task(drain.finish(limit_s=600))
        await asyncio.sleep(0)

        drain.begin()
        await ending

        assert await request == ShuttingDown.code


async def test_a_request_that_its_client_leaves_is_not_ended_by_the_server() -> None:
    drain = Drain()
    async with running(drain) as (request, _):
        drain.begin()

        request.cancel()

        assert await request == "left"


async def test_without_requests_the_end_does_not_wait_for_the_limit() -> None:
    drain = Drain()
    drain.begin()

    await drain.finish(limit_s=600)
