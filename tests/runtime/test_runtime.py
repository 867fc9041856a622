"""What a web process keeps fresh, it keeps fresh whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from django.db import DatabaseError

from serving.flow.meter import Meter
from serving.runtime.live import LiveRequest
from serving.runtime.runtime import Runtime, _repeat


class Keys:
    """A table of which one key may be closed, that tells what it is asked."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.num_read = 0
        self.closed: set[int] = set()

    def follow(self) -> None:
        self.num_read += 1
        self._calls.append(f"read keys {self.num_read}")

    def admit(self, num_read: int) -> None:
        self._calls.append(f"admit keys {num_read}")

    def is_open(self, key_id: int) -> bool:
        return key_id not in self.closed


class Limits:
    """Of a store that answers once it is let to."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_be_read = threading.Event()
        self.may_be_read.set()

    def read_update(self) -> str:
        self.may_be_read.wait(120)
        self._calls.append("read limits")
        return "limits"

    async def follow(self, news: str) -> None:
        self.is_asked.set()
        await self.may_answer.wait()
        self._calls.append(f"follow {news}")


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def keys(calls: list[str]) -> Keys:
    return Keys(calls)


@pytest.fixture
def limits(calls: list[str]) -> Limits:
    return Limits(calls)


@pytest.fixture
async def running(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, limits: Limits
) -> AsyncIterator[Runtime]:
    """Follows keys and limits all the time."""
    made = Runtime()
    monkeypatch.setattr(made, "keys", keys)
    monkeypatch.setattr(made, "limits", limits)
    monkeypatch.setattr(made, "is_auth_on", True)
    tasks = [
        asyncio.create_task(_repeat(made._refresh_keys, 0.001)),
        asyncio.create_task(_repeat(made._refresh_limits, 0.0)),
    ]
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_key_that_is_stopped_ends_its_requests_while_limits_wait_for_their_store(
    running: Runtime, keys: Keys, limits: Limits
) -> None:
    request = asyncio.create_task(asyncio.Event().wait())
    live = LiveRequest("r", 7, Meter(), request)  # type: ignore[arg-type]
    running.live.add(live)
    await limits.is_asked.wait()

    keys.closed.add(7)

    async with asyncio.timeout(60):
        with contextlib.suppress(asyncio.CancelledError):
            await request
    assert request.cancelled()
    assert live.ending is not None


async def test_keys_are_followed_while_what_was_used_of_quotas_is_added_up(
    running: Runtime, keys: Keys, limits: Limits, calls: list[str]
) -> None:
    await limits.is_asked.wait()
    limits.may_be_read.clear()
    limits.may_answer.set()
    try:
        async with asyncio.timeout(60):
            while "follow limits" not in calls:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            num_read = keys.num_read
            while keys.num_read < num_read + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        limits.may_be_read.set()


async def test_new_keys_are_let_in_when_limits_hold_that_were_read_after_them(
    running: Runtime, keys: Keys, limits: Limits, calls: list[str]
) -> None:
    await limits.is_asked.wait()
    num_read = keys.num_read
    async with asyncio.timeout(60):
        while keys.num_read < num_read + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert not [call for call in calls if call.startswith("admit")]
    assert running.accounts_read_at_s == 0

    limits.may_answer.set()
    async with asyncio.timeout(60):
        while not running.accounts_read_at_s:  # noqa: ASYNC110
            await asyncio.sleep(0)

    asked = calls[: calls.index("read limits")]
    assert next(call for call in calls if call.startswith("admit")) == f"admit keys {len(asked)}"
    assert calls.index(f"admit keys {len(asked)}") > calls.index("follow limits")


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
