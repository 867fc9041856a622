"""A web process refreshes its keys and limits, whatever fails or waits, and answers requests at its
end."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from django.db import DatabaseError

from tests.conftest import until_in_loop as until
from tests.tables import table
from vinery_accounts.base import change_signal
from vinery_serving.core.errors import InvalidKey, ShuttingDown
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.state import drain as drain_module
from vinery_serving.gateway.state import runtime as runtime_module
from vinery_serving.gateway.state.drain import Drain, LiveRequest
from vinery_serving.gateway.state.model_rows import read_models
from vinery_serving.gateway.state.runtime import Runtime, _repeat
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ModelAlias, ServedModel


class Keys:
    """A key table that records calls. Keys in `inactive` are not valid."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.num_read = 0
        self.has_pending = True
        self.inactive: set[int] = set()

    def follow(self) -> None:
        self.num_read += 1
        self._calls.append(f"read keys {self.num_read}")

    def admit(self, num_read: int) -> None:
        self._calls.append(f"admit keys {num_read}")

    def is_valid(self, key_id: int) -> bool:
        return key_id not in self.inactive


class Policies:
    """Media rules that count how often they are read."""

    def __init__(self) -> None:
        self.num_read = 0

    def refresh(self) -> None:
        self.num_read += 1


class Limits:
    """Limits whose store answers after `may_answer`. Calls are recorded."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_update_due = False

    def read_update(self) -> str:
        self._calls.append("read limits")
        return "limits"

    async def follow(self, update: str) -> None:
        self.is_asked.set()
        await self.may_answer.wait()
        self._calls.append(f"follow {update}")


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def keys(calls: list[str]) -> Keys:
    return Keys(calls)


@pytest.fixture
def limits(calls: list[str]) -> Limits:
    return Limits(calls)


Replaced = Callable[[Callable[[], int]], Runtime]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch, keys: Keys, limits: Limits) -> Replaced:
    """Makes a runtime with these keys and limits, and with this number of commits."""

    def make(commits: Callable[[], int]) -> Runtime:
        monkeypatch.setattr("vinery_serving.gateway.state.runtime.commit_state", commits)
        runtime = Runtime()
        parts = {"keys": keys, "media_policies": Policies(), "limits": limits, "is_auth_on": True}
        for name, value in parts.items():
            monkeypatch.setattr(runtime, name, value)
        return runtime

    return make


@pytest.fixture
async def running(replaced: Replaced) -> AsyncIterator[Runtime]:
    """A runtime that refreshes keys and limits all the time, while there is always a commit."""
    commits = itertools.count(1)
    runtime = replaced(lambda: next(commits))
    tasks = [
        asyncio.create_task(_repeat(runtime._refresh_keys, 0.001)),
        asyncio.create_task(_repeat(runtime._refresh_limits, 0.0)),
    ]
    yield runtime
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_inactive_key_ends_requests_while_limits_wait_for_a_store(running, keys, limits):
    request = asyncio.create_task(asyncio.Event().wait())
    live = LiveRequest("r", 7, Meter(), request)  # type: ignore[arg-type]
    running.live.add(live)
    await limits.is_asked.wait()

    keys.inactive.add(7)

    async with asyncio.timeout(60):
        with contextlib.suppress(asyncio.CancelledError):
            await request
    assert request.cancelled()
    assert isinstance(live.ending, InvalidKey)


async def test_new_keys_are_admitted_after_limits_that_are_read_later(running, keys, limits, calls):
    await limits.is_asked.wait()
    num_read = keys.num_read
    await until(lambda: keys.num_read >= num_read + 2)
    assert not [call for call in calls if call.startswith("admit")]
    assert running.accounts_read_at_s == 0

    limits.may_answer.set()
    await until(lambda: running.accounts_read_at_s)

    asked = calls[: calls.index("read limits")]
    assert next(call for call in calls if call.startswith("admit")) == f"admit keys {len(asked)}"
    assert calls.index(f"admit keys {len(asked)}") > calls.index("follow limits")


async def test_without_a_commit_nothing_is_read(replaced, limits, calls):
    state = 1
    runtime = replaced(lambda: state)
    limits.may_answer.set()
    once = ["read keys 1", "read limits", "follow limits", "admit keys 1"]

    await runtime._refresh_keys()
    await runtime._refresh_limits()
    assert calls == once
    first_at_s = runtime.accounts_read_at_s
    for _ in range(3):
        await runtime._refresh_keys()
        assert not runtime._are_limits_due.is_set()
    assert calls == once
    assert runtime.accounts_read_at_s > first_at_s

    limits.is_update_due = True
    await runtime._refresh_keys()
    await runtime._refresh_limits()
    assert calls[4:] == ["read limits", "follow limits", "admit keys 1"]

    limits.is_update_due, state = False, 2
    await runtime._refresh_keys()
    await runtime._refresh_limits()
    assert calls[7:] == ["read keys 2", "read limits", "follow limits", "admit keys 2"]
    assert runtime.media_policies.num_read == 2  # with the keys


async def test_what_failed_after_a_commit_is_read_again_without_one(monkeypatch, replaced, limits):
    runtime = replaced(lambda: 1)
    limits.may_answer.set()

    def fail(*_: object) -> None:
        raise DatabaseError("unavailable")

    await runtime._refresh_keys()
    with monkeypatch.context() as patch, pytest.raises(DatabaseError):
        patch.setattr(limits, "read_update", fail)
        await runtime._refresh_limits()
    with monkeypatch.context() as patch, pytest.raises(DatabaseError):
        patch.setattr(runtime, "_refresh_models", fail)
        await runtime._follow_models()
    assert runtime.accounts_read_at_s == runtime.models_read_at_s == 0

    await runtime._refresh_keys()

    assert runtime._are_limits_due.is_set()
    assert runtime._are_models_due.is_set()


@table("error", [DatabaseError("unavailable"), OverflowError("too large"), KeyError(7)])
async def test_a_failed_refresh_is_logged_and_repeated(error, caplog):
    caplog.clear()
    is_done = asyncio.Event()
    errors = [error]

    async def work() -> None:
        if errors:
            raise errors.pop()
        is_done.set()

    task = asyncio.create_task(_repeat(work, 0.001))
    async with asyncio.timeout(60):
        await is_done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert "snapshot not refreshed" in caplog.text


async def test_usage_is_stored_before_limits_are_read_again(
    replaced: Replaced, limits: Limits, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = replaced(lambda: 1)
    monkeypatch.setattr(runtime.ledger, "flush", lambda: calls.append("store usage"))
    limits.is_update_due = True
    limits.may_answer.set()
    await runtime._refresh_keys()
    await runtime._refresh_limits()
    assert calls[calls.index("store usage") :][:2] == ["store usage", "read limits"]


async def test_a_signalled_commit_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "_ASK_INTERVAL_S", 600.0)
    monkeypatch.setattr(runtime_module, "_REFRESH_INTERVAL_S", 0.0)
    num_read = 0

    async def refresh() -> None:
        nonlocal num_read
        num_read += 1

    runtime = Runtime()
    monkeypatch.setattr(runtime, "_refresh_keys", refresh)
    task = asyncio.create_task(runtime._follow_commits())
    await until(lambda: num_read == 1)
    change_signal.send()
    await until(lambda: num_read == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.django_db
@pytest.mark.stores
def test_a_model_is_failing_whose_engine_fails_again_and_again_or_is_no_longer_tried() -> None:
    for name, state, num in (
        ("a", EngineState.RETRYING, 1),
        ("b", EngineState.RETRYING, 2),
        ("c", EngineState.LOADING, 2),
        ("d", EngineState.READY, 0),
        ("e", EngineState.FAILED, 1),
        ("g", EngineState.ASLEEP, 0),
    ):
        model = ServedModel.objects.create(name=name, folder="/m")
        values = {"state": state, "num_failures_in_row": num}
        EngineStatus.objects.create(model=model, last_error="why", **values)
    ServedModel.objects.create(name="f", folder="/m")

    ModelAlias.objects.create(name="chat", targets={"a": 9, "b": 1})

    (entries, failing, aliases, _), reports = read_models()

    assert aliases == {"chat": {"a": 9, "b": 1}}
    assert list(entries) == ["a", "b", "c", "d", "e", "f", "g"]
    assert failing == {"b", "c", "e"}
    assert reports["g"].state == EngineState.ASLEEP


# -- The end of a web process, with tasks instead of requests


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
async def running_request(drain: Drain) -> AsyncIterator[tuple[asyncio.Task[str], asyncio.Event]]:
    may_end = asyncio.Event()
    task = asyncio.create_task(answer(drain, may_end))
    await asyncio.sleep(0)
    yield task, may_end
    task.cancel()


async def test_running_requests_are_answered_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "_POLL_S", 0.0)
    drain = Drain()
    async with running_request(drain) as (request, may_end):
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
        async with running_request(drain) as (request, _):
            drain.begin()
            ending = asyncio.create_task(drain.finish(limit_s))
            await asyncio.sleep(0)
            for _ in range(num_signals - 1):
                drain.begin()
            await ending
            assert await request == ShuttingDown.code

    drain = Drain()
    async with running_request(drain) as (request, _):
        drain.begin()

        request.cancel()

        assert await request == "left"

    drain = Drain()
    drain.begin()
    await drain.finish(limit_s=600)
