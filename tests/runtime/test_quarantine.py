"""A web process stores the requests that end two engines, and refuses those of other processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.db import OperationalError

from vinery.health.metrics import _of_process
from vinery_accounts.quarantine.queue import QuarantineQueue
from vinery_accounts.quarantine.store import FatalRequest
from vinery_serving.core.errors import RequestQuarantined
from vinery_serving.runtime import runtime as runtime_module
from vinery_serving.runtime.runtime import Runtime, _repeat
from vinery_serving.transport.messages import SamplingParams, Submit

MODEL = "tiny-chat"
REQUEST = Submit(1, b"", SamplingParams(), 9, 9.0, lane=(3, 12), request_id="req_1")
OTHER = Submit(1, b"\x01\x00\x00\x00", SamplingParams(), 9, 9.0)


class Database:
    """The table of the quarantine, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, FatalRequest] = {}
        self.is_unavailable = False
        self.num_stored = 0

    def store(self, found: FatalRequest, keep_s: int) -> None:
        if self.is_unavailable:
            raise OperationalError("connection refused")
        self.num_stored += 1
        self.rows[found.digest] = found

    def read(self) -> frozenset[str]:
        return frozenset(self.rows)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def runtime(monkeypatch: pytest.MonkeyPatch, database: Database) -> AsyncIterator[Runtime]:
    """A runtime that stores what is put into quarantine."""
    monkeypatch.setattr(runtime_module, "_read_models", lambda: ({}, frozenset(), {}, {}))
    runtime = Runtime()
    runtime.quarantine = QuarantineQueue(60, store=database.store, read=database.read)
    task = asyncio.create_task(_repeat(runtime._store_quarantined, 0.001))
    yield runtime
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def is_refused(runtime: Runtime, submit: Submit = REQUEST) -> bool:
    try:
        runtime.directory.quarantine.check(MODEL, [submit])
    except RequestQuarantined:
        return True
    return False


async def until_stored(database: Database) -> None:
    async with asyncio.timeout(60):
        while not database.num_stored:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_request_is_stored_at_once_with_its_key_and_organisation(
    runtime: Runtime, database: Database
) -> None:
    runtime.directory.quarantine.add(MODEL, [REQUEST])

    await until_stored(database)
    (row,) = database.rows.values()
    assert (row.model, row.request_id) == (MODEL, "req_1")
    assert (row.organization_id, row.key_id) == (3, 12)
    assert is_refused(runtime)
    assert not is_refused(runtime, OTHER)


async def test_a_request_without_a_key_has_no_ids(runtime: Runtime, database: Database) -> None:
    runtime.directory.quarantine.add(MODEL, [OTHER])

    await until_stored(database)
    (row,) = database.rows.values()
    assert (row.organization_id, row.key_id) == (None, None)


async def test_requests_of_other_processes_and_releases_follow_with_the_models(
    runtime: Runtime, database: Database
) -> None:
    here, there = runtime, Runtime()
    there.quarantine = QuarantineQueue(60, store=database.store, read=database.read)
    here.directory.quarantine.add(MODEL, [REQUEST])
    await until_stored(database)

    await there._refresh_models()
    assert is_refused(there)
    metrics = {each.name: each.samples for each in _of_process(there)}
    assert [each.value for each in metrics["vinery_quarantined_requests"]] == [1]

    database.rows.clear()
    for each in (here, there):
        await each._refresh_models()
        assert not is_refused(each)


async def test_a_request_is_refused_and_stored_later_if_the_database_is_unavailable(
    runtime: Runtime, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.is_unavailable = True
    runtime.directory.quarantine.add(MODEL, [REQUEST])
    async with asyncio.timeout(60):
        while "snapshot not refreshed: connection refused" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    with pytest.raises(OperationalError):
        await runtime._refresh_models()
    assert is_refused(runtime)
    assert not database.rows

    database.is_unavailable = False

    await until_stored(database)
    assert len(database.rows) == 1
    assert is_refused(runtime)


async def test_a_request_that_is_put_during_a_refresh_stays_refused(
    runtime: Runtime, database: Database
) -> None:
    loop = asyncio.get_running_loop()

    def read_before_it_is_put() -> frozenset[str]:
        found = database.read()
        if not database.num_stored:
            loop.call_soon_threadsafe(runtime.directory.quarantine.add, MODEL, [REQUEST])
        return found

    runtime.quarantine = QuarantineQueue(60, store=database.store, read=read_before_it_is_put)

    await runtime._refresh_quarantine()

    assert is_refused(runtime)
    await until_stored(database)


async def test_nothing_is_refused_if_the_quarantine_is_turned_off(settings: Any) -> None:
    settings.VINERY_QUARANTINE_S = 0
    runtime = Runtime()

    runtime.directory.quarantine.add(MODEL, [REQUEST])

    assert not is_refused(runtime)
    assert runtime.quarantine.waiting == frozenset()
