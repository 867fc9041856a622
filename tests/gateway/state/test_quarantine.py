"""A web process stores requests that end two engines, and refuses the requests other processes
stored."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from django.db import OperationalError

from tests.conftest import until_in_loop as until
from vinery_accounts.captures.quarantine import QuarantineQueue
from vinery_accounts.models import QuarantinedRequest
from vinery_platform.operations.metrics import _of_process
from vinery_serving.core.errors import RequestQuarantined
from vinery_serving.core.request import Sampling
from vinery_serving.gateway.state import model_rows
from vinery_serving.gateway.state.runtime import Runtime, _repeat
from vinery_serving.transport.messages import Submit

MODEL = "tiny-chat"
REQUEST = Submit(1, b"", Sampling(), 9, 9.0, lane=(3, 12), request_id="req_1")
OTHER, ANOTHER = (Submit(1, bytes([at, 0, 0, 0]), Sampling(), 9, 9.0) for at in (1, 2))


class Database:
    """The table of the quarantine, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, QuarantinedRequest] = {}
        self.is_unavailable = False
        self.num_stored = 0

    def store(self, found: QuarantinedRequest, keep_s: int) -> None:
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
    """A runtime that stores new quarantines."""
    none = ({}, frozenset(), {}, frozenset()), {}
    monkeypatch.setattr(model_rows, "read_models", lambda: none)
    runtime = Runtime()
    runtime.quarantine = QuarantineQueue(60, store=database.store, read=database.read)
    task = asyncio.create_task(_repeat(runtime._store_quarantined, 0.001))
    yield runtime
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def is_refused(runtime: Runtime, submit: Submit = REQUEST) -> bool:
    try:
        runtime.directory.quarantine.check(MODEL, [submit])
    except RequestQuarantined:
        return True
    return False


@pytest.mark.parametrize(("submit", "ids"), [(REQUEST, (3, 12)), (OTHER, (None, None))])
async def test_a_request_is_stored_with_its_key_and_organisation(runtime, database, submit, ids):
    runtime.directory.quarantine.add(MODEL, [submit])
    await until(lambda: database.num_stored > 0)
    (row,) = database.rows.values()
    assert (row.model, row.request_id) == (MODEL, submit.request_id)
    assert (row.organization_id, row.key_id) == ids
    assert [is_refused(runtime, each) for each in (submit, ANOTHER)] == [True, False]


async def test_requests_of_other_processes_and_releases_follow_with_the_models(runtime, database):
    here, there = runtime, Runtime()
    there.quarantine = QuarantineQueue(60, store=database.store, read=database.read)
    here.directory.quarantine.add(MODEL, [REQUEST])
    await until(lambda: database.num_stored > 0)

    await there._refresh_models()
    assert is_refused(there)
    metrics = {each.name: each.samples for each in _of_process(there)}
    assert [each.value for each in metrics["vinery_quarantined_requests"]] == [1]

    database.rows.clear()
    for each in (here, there):
        await each._refresh_models()
        assert not is_refused(each)


async def test_a_request_is_refused_and_stored_later_without_a_database(runtime, database, caplog):
    database.is_unavailable = True
    runtime.directory.quarantine.add(MODEL, [REQUEST])
    await until(lambda: "snapshot not refreshed: connection refused" in caplog.text)
    with pytest.raises(OperationalError):
        await runtime._refresh_models()
    assert is_refused(runtime)
    assert not database.rows

    database.is_unavailable = False

    await until(lambda: database.num_stored > 0)
    assert len(database.rows) == 1
    assert is_refused(runtime)


async def test_a_request_that_is_put_during_a_refresh_stays_refused(runtime, database):
    loop = asyncio.get_running_loop()

    def read_before_it_is_put() -> frozenset[str]:
        found = database.read()
        if not database.num_stored:
            loop.call_soon_threadsafe(runtime.directory.quarantine.add, MODEL, [REQUEST])
        return found

    runtime.quarantine = QuarantineQueue(60, store=database.store, read=read_before_it_is_put)

    await runtime._refresh_quarantine()

    assert is_refused(runtime)
    await until(lambda: database.num_stored > 0)
