"""Worker processes answer, are limited and replaced, and run no code in the web process."""

import asyncio
import contextlib
import os
import pickle
import resource
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import until_in_loop as until
from tests.examples import examples
from tests.gateway.workers import jobs_for_tests as jobs
from tests.gateway.workers.jobs_for_tests import CODEC, Colour, Grape
from tests.tables import table
from vinery_serving.core.errors import (
    ContextTooLong,
    InvalidRequest,
    Overloaded,
    UnsupportedParameter,
)
from vinery_serving.gateway.reading.worker_jobs import _cpu_limit
from vinery_serving.gateway.workers.pool import (
    JobFailed,
    WorkerCrashed,
    WorkerPool,
    WorkLimits,
    exit_name,
)
from vinery_serving.gateway.workers.worker import BrokenAnswer, decode_refusal, encode_refusal

LIMITS = WorkLimits(
    num_processes=2, cpu_s=1, wall_s=60, memory_bytes=256 * 2**20, max_waiting=4, wait_s=60
)


@contextlib.asynccontextmanager
async def pool_with(**limits: float) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("tests.gateway.workers.jobs_for_tests", replace(LIMITS, **limits))  # type: ignore[arg-type]
    yield pool
    await pool.stop()


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with pool_with() as pool:
        yield pool


async def call(pool: WorkerPool, job: Any, *arguments: Any, key: int = 1, body: bytes = b"") -> Any:
    async with pool.worker(key, "test") as worker:
        return await worker.call(job, *arguments, body=body)


def fork_server_pid(pool: WorkerPool) -> int:
    assert pool._server is not None
    return pool._server._process.pid


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def computes(pid: int) -> bool:
    return ") R " in Path(f"/proc/{pid}/stat").read_text()


async def test_values_arrive_and_a_client_has_a_session_of_its_own(pool: WorkerPool) -> None:
    grape = Grape("Merlot", Colour.RED, tuple(range(1000)))

    answer = await call(pool, jobs.echo, {"grapes": [grape, (1, None)], "big": 10**400})
    assert answer == {"grapes": [grape, (1, None)], "big": 10**400}
    assert await call(pool, jobs.size, body=b"x" * 20_000_000) == 20_000_000

    async with pool.worker(1, "test") as worker:
        pid = await worker.call(jobs.pid)
        await worker.call(jobs.remember, "name", "Merlot")
        assert await worker.call(jobs.remember, "name", "") == "Merlot"

    async with pool.worker(2, "test") as worker:
        assert await worker.call(jobs.pid) == pid
        assert await worker.call(jobs.remember, "name", "") is None


async def test_refusals_cost_no_process_and_defects_show_no_text(pool: WorkerPool) -> None:
    pid = await call(pool, jobs.pid)
    with pytest.raises(ContextTooLong, match="maximum context length is 8 tokens") as caught:
        await call(pool, jobs.refuse)
    assert caught.value.param == "messages[1]"
    assert caught.value.code == "context_length_exceeded"

    with pytest.raises(UnsupportedParameter, match="Leave it out") as unsupported:
        await call(pool, jobs.refuse_option)
    assert (unsupported.value.param, unsupported.value.code) == ("seed", "no_seed")
    assert await call(pool, jobs.pid) == pid
    assert pool.num_killed == 0

    with pytest.raises(JobFailed, match=r"ZeroDivisionError \(at .*jobs_for_tests.py") as caught:
        await call(pool, jobs.fail)

    assert "division by" not in str(caught.value)

    with pytest.raises(Exception, match=r".") as caught:
        await call(pool, jobs.foreign)

    assert type(caught.value).__name__ in ("JobFailed", "BrokenAnswer")


async def test_work_ends_when_its_client_leaves(pool: WorkerPool) -> None:
    await call(pool, jobs.pid)
    looping = asyncio.create_task(call(pool, jobs.loop))
    await until(lambda: pool.turns.num_running == 1)
    [pid] = children_of(fork_server_pid(pool))
    await until(lambda: computes(pid))

    looping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await looping
    await until(lambda: not is_running(pid))
    await until(lambda: children_of(fork_server_pid(pool)) == [])
    assert (pool.turns.num_running, pool.turns.num_waiting) == (0, 0)
    assert await call(pool, jobs.echo, 1) == 1
    assert pool.num_ended["test", "left"] == 1


async def test_work_that_uses_its_time_or_too_much_memory_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(InvalidRequest, match="takes too long or too much memory"):
        await call(pool, jobs.loop)

    assert await call(pool, jobs.echo, 1) == 1
    assert pool.num_ended["test", "refused"] == 1

    assert await call(pool, jobs.grow, 100) == 100 * 2**20
    with pytest.raises(InvalidRequest, match="too much memory"):
        await call(pool, jobs.grow, 400)


async def test_a_process_that_has_grown_was_killed_or_dies_is_replaced(pool: WorkerPool) -> None:
    first = await call(pool, jobs.pid)
    await call(pool, jobs.grow, 200)
    assert await call(pool, jobs.pid) != first

    pid = await call(pool, jobs.pid)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not children_of(fork_server_pid(pool)))
    await until(lambda: not any(each.is_usable for each in pool._idle))
    assert await call(pool, jobs.pid) != pid


@table(
    "status, error",
    [
        *((status, Overloaded) for status in (0, 3, -signal.SIGKILL, -signal.SIGALRM)),
        (-signal.SIGSEGV, WorkerCrashed),
        # The last, as native code ends without memory.
        *((-each, InvalidRequest) for each in (signal.SIGXCPU, signal.SIGPROF, signal.SIGABRT)),
    ],
)
async def test_a_lost_process_is_no_fault_of_its_client_unless_it_was_at_a_limit(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture, status: int, error: type[Exception]
) -> None:
    caplog.clear()
    with pytest.raises(error) as caught:
        await call(pool, jobs.end, status, body=b"Sauvignon")

    if isinstance(caught.value, Overloaded):
        assert caught.value.retry_after_s == 1
    (warning,) = [each for each in caplog.records if "ended" in each.message]
    assert warning.fields["status"] == exit_name(status)  # type: ignore[attr-defined]
    assert "Sauvignon" not in caplog.text
    assert await call(pool, jobs.echo, 1) == 1


async def test_work_has_a_deadline_and_a_process_that_never_began_is_no_fault_of_its_client() -> (
    None
):
    async with pool_with(hung_after_s=0) as pool:
        await call(pool, jobs.sleep, 0)
        pool.limits = replace(pool.limits, wall_s=0.5)  # the start of the fork server takes longer
        with pytest.raises(InvalidRequest, match="takes too long"):
            await call(pool, jobs.sleep, 1000)
        await until(lambda: children_of(fork_server_pid(pool)) == [])

        os.kill(fork_server_pid(pool), signal.SIGSTOP)
        async with pool.worker(1, "test"):
            with pytest.raises(Overloaded):
                await call(pool, jobs.echo, 1, key=2)
        os.kill(fork_server_pid(pool), signal.SIGCONT)


async def test_a_killed_fork_server_and_a_pool_that_stops_take_their_workers_along(
    pool: WorkerPool,
) -> None:
    await call(pool, jobs.pid)
    running = asyncio.create_task(call(pool, jobs.sleep, 1000))
    await until(lambda: pool.turns.num_running == 1)
    server = fork_server_pid(pool)
    [worker] = children_of(server)

    os.kill(server, signal.SIGKILL)

    with pytest.raises(Overloaded):
        await running
    await until(lambda: not is_running(worker))
    assert await call(pool, jobs.echo, 1) == 1
    assert fork_server_pid(pool) != server
    assert pool.num_starts == 2

    server, (worker,) = fork_server_pid(pool), children_of(fork_server_pid(pool))
    running = asyncio.create_task(call(pool, jobs.sleep, 1000))
    await until(lambda: pool.turns.num_running == 1)
    await pool.stop()
    assert not is_running(server)
    await until(lambda: not is_running(worker))
    with pytest.raises(Overloaded):
        await running


async def test_a_process_with_thousands_of_connections_starts_a_fork_server() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.dup(0) for _ in range(1100)]  # `select` takes no higher descriptor than 1023
    try:
        async with pool_with() as pool:
            assert await call(pool, jobs.echo, 5) == 5
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_stopped_fork_server_is_replaced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_serving.processes.heartbeat._STOPPED_S", 0.3)
    async with pool_with(hung_after_s=1000) as pool:
        ready = asyncio.create_task(call(pool, jobs.sleep, 1000, key=1))
        await until(lambda: pool.turns.num_running == 1)
        server = fork_server_pid(pool)
        await until(lambda: bool(children_of(server)))
        os.kill(server, signal.SIGSTOP)

        # The call needs a process that the stopped server does not start, and no process is to be
        # killed.
        with pytest.raises(Overloaded):
            await call(pool, jobs.echo, 1, key=2)

        await until(lambda: not is_running(server))
        with pytest.raises(Overloaded):
            await ready
        assert await call(pool, jobs.echo, 1) == 1
        assert fork_server_pid(pool) != server
        await until(lambda: "the fork server stood still" in caplog.text)
    assert "worker.py" in caplog.text, "the stacks are not in the log"


async def test_a_fork_server_that_never_works_is_not_started_again_and_again(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = [sys.executable, "-c", ""]
    monkeypatch.setattr("vinery_serving.gateway.workers.pool.arguments", lambda *_: ending)
    for _ in range(10):
        with pytest.raises(Overloaded):
            await call(pool, jobs.pid)

    assert pool.num_starts == 3


async def test_a_pool_apart_has_slots_and_limits_of_its_own_and_the_same_fork_server() -> None:
    async with pool_with(num_processes=1) as pool:
        apart = pool.apart(replace(LIMITS, num_processes=1, memory_bytes=1024 * 2**20))
        with pytest.raises(InvalidRequest):
            await call(pool, jobs.grow, 600)
        async with pool.worker(1, "test"):  # the only slot
            assert await call(apart, jobs.grow, 600) == 600 * 2**20
            assert apart.num_starts == 0
        await apart.stop()
        assert await call(pool, jobs.echo, 1) == 1


async def test_a_worker_has_no_environment_no_files_and_writes_none(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINERY_SECRET_KEY", "grapes")

    environment = await call(pool, jobs.environment)

    allowed = {"PYTHONPATH", "TOKENIZERS_PARALLELISM", "PATH", "TZ", "LD_LIBRARY_PATH", "LC_CTYPE"}
    assert set(environment) <= allowed
    # Three standard streams, the connection, and the file about its own memory.
    assert len(await call(pool, jobs.files)) == 5
    assert await call(pool, jobs.limits) == (0, 0)


async def test_a_process_may_serve_once_and_later_ones_are_loaded(pool: WorkerPool) -> None:
    async with pool.worker(1, "test") as worker:
        worker.use_once()
        pid = await worker.call(jobs.pid)
        assert await worker.call(jobs.pid) == pid

    await until(lambda: not is_running(pid))
    assert await call(pool, jobs.pid, key=2) != pid

    first = await call(pool, jobs.pid)
    pool.load(["Merlot"])
    assert await call(pool, jobs.loaded) == ["Merlot"]
    assert await call(pool, jobs.pid) != first


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary()
    | st.builds(Grape, st.text(), st.just(Colour.RED), st.lists(st.integers(0, 2**40)).map(tuple)),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@settings(max_examples=examples(25))
@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert CODEC.loads(CODEC.dumps(value)) == value


_OTHER = CODEC.dumps(InvalidRequest("x"))


@table("data", [_OTHER, pickle.dumps(Runs()), pickle.dumps(Colour.RED), b"", b"\x80"])
def test_an_answer_names_no_code(data: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        CODEC.loads(data)


@table("state", [b"}\x8c\x07_value_K\x07s", b"N}\x8c\x07_value_K\x07s\x86"])
def test_an_answer_changes_no_value_that_others_share(state: bytes) -> None:
    data = CODEC.dumps(Colour.RED)
    assert data.endswith(b"Q.")
    with pytest.raises(BrokenAnswer):
        CODEC.loads(data[:-1] + state + b"b.")
    assert Colour.RED.value == "red"


@given(st.binary())
def test_any_bytes_are_an_answer_or_broken(data: bytes) -> None:
    with contextlib.suppress(BrokenAnswer):
        CODEC.loads(data)


def test_a_refusal_keeps_its_parts_and_a_broken_one_is_noticed() -> None:
    error = decode_refusal(encode_refusal(InvalidRequest("No.", param="n", code="bad")))

    assert type(error) is InvalidRequest
    assert (error.message, error.param, error.code) == ("No.", "n", "bad")
    for parts in ((), 5, ("Nothing", "a", None, None, "x"), None):
        with pytest.raises(BrokenAnswer):
            decode_refusal(pickle.dumps(parts))


def test_a_process_ends_in_a_block_that_takes_too_long_and_goes_on_after_another() -> None:
    pid = os.fork()
    if not pid:
        with _cpu_limit(0.05):
            while True:
                pass
    _, status = os.waitpid(pid, 0)

    assert os.WTERMSIG(status) == signal.SIGPROF

    with _cpu_limit(0.5):
        pass

    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
