"""What a web process keeps fresh, it keeps fresh whatever happens."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from django.db import DatabaseError

from serving.runtime import _repeat


@pytest.mark.parametrize("error", [DatabaseError("away"), OverflowError("too large"), KeyError(7)])
async def test_what_fails_once_is_tried_again_and_told(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    is_done = asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        is_done.set()

    task = asyncio.create_task(_repeat(work, 0.001))
    try:
        async with asyncio.timeout(5):
            await is_done.wait()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    assert "snapshot not refreshed" in caplog.text
