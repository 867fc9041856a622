"""The node carries out jobs: each in a process that may be killed, paused or cancelled."""

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from django.db import DatabaseError

from tests.conftest import REPOSITORY, until_in_loop
from tests.database_threads import in_thread
from tests.tables import table
from vinery_accounts.base import change_signal
from vinery_serving.models import job_requests as jobs
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_rows import (
    MAX_EVENTS,
    JobKind,
    JobState,
    ModelEvent,
    ModelJob,
    record_event,
)
from vinery_serving.models.jobs import JobDocument
from vinery_serving.models.models import ServedModel
from vinery_serving.node import job_runner
from vinery_serving.node.job_runner import JobRunner
from vinery_serving.node.reconciler import _read_specs

pytestmark = pytest.mark.django_db(transaction=True)
TINY_CHAT = REPOSITORY / "models" / "tiny-chat"
FAKE = (sys.executable, "-m", "tests.fakes.job")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    settings.VINERY_LOG_DIR = settings.VINERY_RUN_DIR = tmp_path
    monkeypatch.setattr(job_runner, "_PAUSES_S", (0.0,) * 4)
    monkeypatch.setattr(job_runner, "_WRITE_INTERVAL_S", 0.01)
    monkeypatch.setattr(job_runner, "_POLL_INTERVAL_S", 0.05)


@asynccontextmanager
async def a_node(leads: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
    runner = asyncio.create_task(JobRunner(FAKE, leads).run())
    try:
        yield
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)


def model_without_files(name: str = "m") -> ServedModel:
    model = ServedModel(name=name, folder="")
    model.awaits_folder = True
    model.full_clean()
    model.save()
    return model


def begin(tmp_path: Path, kind: JobKind = JobKind.PULL, **parameters: Any) -> ModelJob:
    model = ServedModel.objects.filter(name="m").first() or model_without_files()
    return jobs.begin(model, kind, {"begun": str(tmp_path / "begun"), **parameters})


async def until(job: ModelJob, is_so: Callable[[ModelJob], bool]) -> ModelJob:
    async with asyncio.timeout(120):
        while not is_so(await in_thread(job.refresh_from_db) or job):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return job


def in_state(state: JobState) -> Callable[[ModelJob], bool]:
    return lambda job: job.state == state


def meanwhile(*steps: Coroutine[Any, Any, object]) -> None:
    """Do this while a node carries out jobs."""

    async def run() -> None:
        async with a_node():
            for step in steps:
                await step

    asyncio.run(run())


def has_begun(job: ModelJob) -> bool:
    """For `until`: the job's process has reported that it blocks."""
    return job.done_bytes == 1


def processes(tmp_path: Path, action: str = "run") -> list[int]:
    path = tmp_path / "begun"
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [int(pid) for name, pid in words if name == action]


async def ask(change: Callable[[ModelJob], ModelJob], job: ModelJob) -> None:
    def send() -> None:
        job.refresh_from_db()
        change(job)
        change_signal.send()

    await in_thread(send)


@pytest.mark.stores
def test_a_result_gives_the_model_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "_WRITE_INTERVAL_S", 600.0)
    job = begin(tmp_path, result={"folder": str(TINY_CHAT)})
    assert job.model.shown_state is ShownState.PULLING
    assert _read_specs(None)[1] == {}
    meanwhile(until(job, in_state(JobState.DONE)))

    assert (job.stage, job.done_bytes, job.total_bytes) == ("working", 1, 4), "the last progress"
    model = ServedModel.objects.get()
    assert model.folder == str(TINY_CHAT)
    assert [spec.name for spec in _read_specs(None)[1] or ()] == ["m"]
    assert job.log_path.read_text() == "a line for the log\n"
    assert [event.state for event in ModelEvent.objects.all()] == ["pulling"]


@pytest.mark.parametrize(
    ("kind", "parameters", "reason", "num_processes"),
    [
        (JobKind.PULL, {"result": {"folder": "/"}}, "has no openvino_model.xml", 1),
        (JobKind.PULL, {"error": "No such repository."}, "No such repository.", 1),
        (JobKind.BENCH, {"result": {"of": "another form"}}, "could not be stored", 1),
        (JobKind.PULL, {"num_kills": 99}, "It was begun 5 times", 5),
    ],
)
def test_jobs_fail_with_reasons_and_begin_again(tmp_path, kind, parameters, reason, num_processes):
    digest = model_without_files().settings_digest
    job = begin(tmp_path, kind, **parameters, settings_digest=digest)

    async def run() -> None:
        async with a_node():
            await until(job, in_state(JobState.FAILED))
            assert reason in job.error
            assert len(processes(tmp_path)) == num_processes
            await ask(jobs.resume, job)
            await until(job, lambda _: len(processes(tmp_path)) > num_processes)
            await until(job, lambda row: not row.is_unfinished)

    asyncio.run(run())
    if kind is JobKind.PULL:
        assert ServedModel.objects.get().shown_state is ShownState.FAILED
        assert ModelEvent.objects.first().reason == job.error  # type: ignore[union-attr]


NOISE = (
    *("[INFO] loading\n", "x" * 3_000_000 + "\n", "\n", "[1]\n", "5\n", "null\n", '{"stage": 5}\n'),
    *('{"stage": "s", "done_bytes": "many"}\n', '{"stage": "s", "done_bytes": -1}\n'),
    *(f'{{"stage": "s", "total_bytes": {2**63}}}\n', '{"result": []}\n', '{"other": 1}\n'),
    *('{"stage": "s", "done_bytes": NaN}\n', '{"error": {}}\n', "[" * 100_000 + "\n"),
)


def test_output_that_is_no_line_of_the_protocol_is_log(tmp_path: Path) -> None:
    job = begin(tmp_path, writes=NOISE, result={"folder": str(TINY_CHAT)})
    meanwhile(until(job, in_state(JobState.DONE)))
    assert (job.num_attempts, len(processes(tmp_path))) == (1, 1)
    logged = job.log_path.read_text()
    assert "[INFO] loading\n" in logged
    assert '{"stage": "s", "done_bytes": "many"}\n' in logged
    assert "A line of its output was too long.\n" in logged


def test_output_of_libraries_does_not_reach_the_protocol(tmp_path: Path) -> None:
    """Native code writes to file descriptor 1, and so do the processes that a job starts."""
    code = (
        "import os, subprocess, sys, types\n"
        "from vinery_serving.models.jobs import __main__ as main\n"
        "def run(document, reporter):\n"
        "    os.write(1, b'[INFO] native\\n'); print('[INFO] printed')\n"
        "    subprocess.run(['echo', '[INFO] a child'])\n"
        "    if document.parameters: raise TypeError('an error that no code expects')\n"
        "    return {'folder': '/f'}\n"
        "sys.modules['own'] = types.SimpleNamespace(run=run)\n"
        "main._MODULES = {'pull': 'own'}\n"
        "sys.exit(main.main())\n"
    )

    async def run(**parameters: int) -> job_runner.JobEnd:
        known: dict[str, Any] = {"kind": "pull", "job_id": 7, "node_pid": os.getpid()}
        document = JobDocument(**known, model="m", home=tmp_path, parameters=parameters)
        log = tmp_path / "job.log"
        return await job_runner.run_job(document, log, print, (sys.executable, "-c", code))

    assert asyncio.run(run()).result == {"folder": "/f"}
    logged = (tmp_path / "job.log").read_text()
    for line in ("[INFO] native", "[INFO] printed", "[INFO] a child"):
        assert line in logged
    end = asyncio.run(run(fails=1))
    assert end.error.startswith("It ended unexpectedly (TypeError).")
    assert "an error that no code expects" in (tmp_path / "job.log").read_text()


def test_an_attempt_whose_end_is_not_stored_counts_and_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails while the node reads the output or stores the end of an attempt."""
    job = begin(tmp_path, error="No such repository.")
    pauses: list[int] = []

    def keep(row: ModelJob, pause_s: float) -> None:
        pauses.append(row.num_attempts)
        if len(pauses) < 3:  # at the end of the attempt, and when the node looks again
            raise DatabaseError
        wait_for_attempt(row, pause_s)

    async def fail(*_: object) -> None:
        raise DatabaseError

    wait_for_attempt = job_runner.wait_for_attempt
    monkeypatch.setattr(job_runner, "wait_for_attempt", keep)
    with monkeypatch.context() as patch:
        patch.setattr(job_runner, "_read_to_end", fail)
        meanwhile(until(job, in_state(JobState.FAILED)))
    assert (pauses, job.num_attempts) == ([1, 1, 1, 2, 3, 4], 5)
    assert "could not follow its process: DatabaseError. It was begun 5 times" in job.error

    del pauses[2:]
    jobs.resume(job)
    store, num_stored = job_runner._fail, 0

    async def fail_often(row: ModelJob, error: str) -> None:
        nonlocal num_stored
        num_stored += 1
        await (store(row, error) if num_stored > 5 else fail())

    monkeypatch.setattr(job_runner, "_fail", fail_often)
    meanwhile(until(job, in_state(JobState.FAILED)))
    assert (pauses[2:], job.num_attempts) == ([1, 2, 3, 4], 5)
    assert "Its end was not stored. It was begun 5 times" in job.error


def test_an_attempt_of_a_node_that_was_killed_counts(tmp_path: Path) -> None:
    job = begin(tmp_path, result={"folder": str(TINY_CHAT)})
    ModelJob.objects.update(state=JobState.RUNNING, num_attempts=4)
    meanwhile(until(job, in_state(JobState.DONE)))
    assert job.num_attempts == 5

    job = begin(tmp_path, result={"folder": str(TINY_CHAT)})
    ModelJob.objects.filter(pk=job.pk).update(state=JobState.RUNNING, num_attempts=5)
    meanwhile(until(job, in_state(JobState.FAILED)))
    assert len(processes(tmp_path)) == 1


def test_a_host_that_leads_no_more_ends_its_jobs_and_leaves_the_rows_to_the_next_one(
    tmp_path: Path,
) -> None:
    job = begin(tmp_path, blocks=True)
    looks = [True]

    def leads() -> bool:
        looks.append(looks[0])
        return looks[0]

    def go_on_elsewhere() -> None:
        ModelJob.objects.update(state=JobState.RUNNING, num_attempts=2, done_bytes=7)
        looks[:] = [False]

    async def run() -> None:
        async with a_node(leads):
            await until(job, has_begun)
            (pid,) = processes(tmp_path)
            await in_thread(go_on_elsewhere)
            await until(job, lambda _: not psutil.pid_exists(pid) and len(looks) > 3)

    asyncio.run(run())
    job.refresh_from_db()
    assert (job.state, job.num_attempts, job.done_bytes) == (JobState.RUNNING, 2, 7)
    assert len(processes(tmp_path)) == 1


SECRETS = {"VINERY_SECRET_KEY": "s1", "VINERY_DATABASE_URL": "s2", "DATABASE_URL": "s3"}
TOKENS = {"HF_TOKEN": "t1", "AWS_SECRET_ACCESS_KEY": "t2", "PIP_INDEX_URL": "t3"}
TOKENS |= {"XDG_CACHE_HOME": "/c"}  # where Hugging Face's login writes its token
WEB = {"https_proxy": "p1", "VINERY_JOB_NETWORKS": "p2"}
PLACES = {"PATH": "/bin", "HOME": "/home"}


@table(
    "kind, parameters, expected",
    [
        ("pull", {"kind": "hub"}, {"HF_TOKEN", "XDG_CACHE_HOME", *WEB}),
        ("pull", {"kind": "archive", "url": "https://store/m.zip"}, {*WEB}),
        (
            "pull",
            {"kind": "archive", "url": "s3://a/m.zip"},
            {"AWS_SECRET_ACCESS_KEY", "https_proxy"},
        ),
        ("pull", {"kind": "files"}, set()),
        ("pull", {"kind": "another"}, set()),
        ("convert", {"source": "/m"}, {"PIP_INDEX_URL", *WEB}),
        ("bench", {}, set()),
        ("tune", {}, set()),
    ],
)
def test_a_job_has_only_the_variables_that_its_work_needs(
    monkeypatch: pytest.MonkeyPatch, kind: str, parameters: dict[str, str], expected: set[str]
) -> None:
    known: dict[str, Any] = {"kind": kind, "job_id": 1, "node_pid": 1, "model": "m"}
    document = JobDocument(**known, home=Path("/"), parameters=parameters)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", {**SECRETS, **TOKENS, **WEB, **PLACES})
        assert set(job_runner.job_environment(document)) == {*PLACES, *expected}
        discarded = msgspec.structs.replace(document, action="discard")
        assert set(job_runner.job_environment(discarded)) == {*PLACES}


def test_a_job_that_ends_while_its_row_is_read_is_not_begun_again(tmp_path, monkeypatch):
    job, runner = begin(tmp_path, error="No such repository."), JobRunner(FAKE)
    ended: list[int] = []

    def read_slowly(leads: Callable[[], bool]) -> Any:
        found = read(leads)
        for _, task in runner._running.values():
            while not task.done():
                time.sleep(0.01)
        ended.append(len(runner._running))
        return found

    async def run() -> None:
        task = asyncio.create_task(runner.run())
        await until(job, lambda _: 1 in ended[:-1])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    read = job_runner._read_jobs
    monkeypatch.setattr(job_runner, "_read_jobs", read_slowly)
    asyncio.run(run())
    assert (job.state, len(processes(tmp_path))) == (JobState.FAILED, 1)


def test_each_host_fetches_for_itself_and_the_first_one_does_all_else() -> None:
    model, own = model_without_files(), str(job_runner.host_id())
    pull = jobs.begin(model, JobKind.PULL, {"path": "/m"})
    fetch = ModelJob.objects.create(model=model, kind=JobKind.FETCH, parameters={"host": own})
    other = ModelJob.objects.create(
        model=model_without_files("n"), kind=JobKind.FETCH, parameters={"host": "another"}
    )
    assert set(job_runner._read_jobs(lambda: True)) == {pull.pk, fetch.pk}
    assert set(job_runner._read_jobs(lambda: False)) == {fetch.pk}
    assert other.is_unfinished


def test_a_killed_process_is_begun_again(tmp_path: Path) -> None:
    job = begin(tmp_path, num_kills=2, result={"folder": str(TINY_CHAT)})
    meanwhile(until(job, in_state(JobState.DONE)))
    assert job.num_attempts == 3


def test_a_paused_job_has_no_process_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    job = begin(tmp_path, blocks=True)

    async def run() -> None:
        async with a_node():
            await until(job, has_begun)
            await ask(jobs.pause, job)
            await until(job, in_state(JobState.PAUSED))
            (pid,) = processes(tmp_path)
            assert not psutil.pid_exists(pid)
            await ask(jobs.resume, job)
            await until(job, lambda _: len(processes(tmp_path)) == 2)

    asyncio.run(run())
    assert job.num_attempts <= 1


def test_a_cancelled_job_discards_what_it_has_made(tmp_path: Path) -> None:
    job = begin(tmp_path, blocks=True)
    cancelled = until(job, in_state(JobState.CANCELLED))
    meanwhile(until(job, has_begun), ask(jobs.cancel, job), cancelled)
    assert len(processes(tmp_path, "discard")) == 1
    assert ServedModel.objects.get().shown_state is ShownState.REGISTERED


def test_a_job_is_discarded_later_if_the_process_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_job, errors = job_runner.run_job, [OSError(errno.EAGAIN, "no processes")]

    async def run_later(document: JobDocument, *others: Any) -> job_runner.JobEnd:
        if document.action == "discard" and errors:
            raise errors.pop()
        return await run_job(document, *others)

    monkeypatch.setattr(job_runner, "run_job", run_later)
    job = begin(tmp_path, blocks=True)
    cancelled = until(job, in_state(JobState.CANCELLED))
    meanwhile(until(job, has_begun), ask(jobs.cancel, job), cancelled)
    assert not errors
    assert len(processes(tmp_path, "discard")) == 1


@pytest.mark.stores
def test_the_next_node_begins_a_job_again(tmp_path: Path) -> None:
    job = begin(tmp_path, blocks=True)
    meanwhile(until(job, has_begun))
    meanwhile(until(job, lambda _: len(processes(tmp_path)) == 2))
    assert job.num_attempts == 1


def test_the_job_of_a_removed_model_ends(tmp_path: Path) -> None:
    job = begin(tmp_path, blocks=True)

    async def run() -> None:
        async with a_node():
            await until(job, has_begun)
            (pid,) = processes(tmp_path)
            await in_thread(lambda: job.model.delete())
            await until_in_loop(lambda: not psutil.pid_exists(pid))

    asyncio.run(run())


@pytest.mark.stores
def test_jobs_of_a_kind_take_turns(tmp_path: Path) -> None:
    first, second, of_another_kind = (
        jobs.begin(model_without_files(name), kind, {"begun": str(tmp_path / name), "blocks": True})
        for name, kind in (("m", JobKind.PULL), ("n", JobKind.PULL), ("o", JobKind.CONVERT))
    )
    meanwhile(
        until(first, in_state(JobState.RUNNING)),
        until(of_another_kind, in_state(JobState.RUNNING)),
        until(second, in_state(JobState.WAITING)),
        ask(jobs.cancel, first),
        until(second, in_state(JobState.RUNNING)),
    )


def test_the_process_ends_with_its_node(tmp_path: Path) -> None:
    """The process of a job asks the kernel for it, so a killed node leaves none behind."""
    code = (
        "import subprocess, sys, os\n"
        "p = subprocess.Popen([sys.executable, '-m', 'vinery_serving.models.jobs', 'pull'],"
        " stdin=subprocess.PIPE)\n"
        'p.stdin.write(b\'{"kind": "pull", "job_id": 1, "node_pid": 1, "model": "m",'
        ' "home": "/"}\')\n'
        "p.stdin.close()\n"
        "sys.exit(p.wait())\n"
    )
    assert subprocess.run((sys.executable, "-c", code), check=False).returncode != 0


@pytest.mark.django_db
@pytest.mark.stores
def test_the_history_of_a_model_is_bounded() -> None:
    model = model_without_files()
    for number in range(MAX_EVENTS + 60):
        record_event(model.pk, "ready" if number % 2 else "loading")
    record_event(model.pk, "ready")  # which repeats the newest one
    assert MAX_EVENTS <= ModelEvent.objects.count() <= MAX_EVENTS + 50
    assert ModelEvent.objects.first().state == "ready"  # type: ignore[union-attr]
