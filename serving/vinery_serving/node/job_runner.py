"""Carries out the jobs of models: one process for each, one job of a kind at a time.

The runner reads the administrators' wishes from the table whenever it changes, and begins, pauses
or cancels each job. A killed process is started again, a few times. When a node dies, the processes
of its jobs end, and the next node starts the jobs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from vinery_accounts.base import change_signal
from vinery_accounts.base.connections import giving_back
from vinery_serving.cluster.folders import is_small
from vinery_serving.cluster.lease import host_id
from vinery_serving.models.job_requests import take_result
from vinery_serving.models.job_rows import (
    FOLDER_KINDS,
    UNFINISHED,
    Asked,
    JobKind,
    JobState,
    ModelJob,
    SecretLost,
    record_event,
    secret_of,
    wait_for_attempt,
)
from vinery_serving.models.jobs import JobDocument, JobLine
from vinery_serving.node.engine_process import opened_log
from vinery_serving.processes.child import NETWORK_VARIABLES, ChildProcess, environment_with
from vinery_serving.processes.upkeep import until_next
from vinery_serving.transport.handshake import socket_key
from vinery_serving.transport.sockets import EngineAddress, engine_socket, node_socket, settings_key

log = logging.getLogger(__name__)

# Changes are signalled, but not those of another host.
_POLL_INTERVAL_S: Final = 3.0
# How often progress is written.
_WRITE_INTERVAL_S: Final = 1.0
# The time over which the speed is measured.
_SPEED_WINDOW_S: Final = 10.0
# How often a process that was killed is begun again, and the pauses before.
_MAX_ATTEMPTS: Final = 5
_PAUSES_S: Final = (1.0, 5.0, 20.0, 60.0)
# Measurements disturb each other.
_TURNS: Final[Mapping[str, str]] = {JobKind.TUNE: JobKind.BENCH}
COMMAND: Final = (sys.executable, "-m", "vinery_serving.models.jobs")
# How long a process has to end by itself after SIGTERM.
_END_TIMEOUT_S: Final = 5.0
# A line of progress is short; a result may have a table.
_MAX_LINE_BYTES: Final = 1 << 20
_MAX_LOGGED_BYTES: Final = 4096  # of a line that is none of the protocol


class JobRunner:
    """Runs until it is cancelled. The processes end with the runner, and their jobs wait."""

    def __init__(
        self, command: Sequence[str] = COMMAND, leads: Callable[[], bool] = lambda: True
    ) -> None:
        """`command` starts the process of a job. `leads`: whether this host runs the jobs that name
        no host now."""
        self._command = command
        self._leads = leads
        self._running: dict[int, tuple[str, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        wake = asyncio.Event()
        with change_signal.listening(wake.set):
            try:
                while True:
                    wake.clear()
                    # First: the row of a job that ends while it is read may be older than the end.
                    self._running = {
                        job_id: each for job_id, each in self._running.items() if not each[1].done()
                    }
                    try:
                        jobs = await asyncio.to_thread(_read_jobs, self._leads)
                    except DatabaseError as error:
                        log.warning("database unavailable, jobs left unchanged error=%s", error)
                    else:
                        await self._follow(jobs, wake.set)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(until_next(_POLL_INTERVAL_S)):
                            await wake.wait()
            finally:
                await asyncio.shield(self._end(list(self._running)))

    async def _follow(self, jobs: Mapping[int, ModelJob], on_end: Callable[[], None]) -> None:
        """Bring each job to what is asked of it. `on_end` is called when one has ended."""
        unwanted = [
            job_id
            for job_id in self._running
            if job_id not in jobs or jobs[job_id].asked != Asked.RUN
        ]
        await self._end(unwanted)
        for job in jobs.values():
            if job.pk in self._running:
                continue
            if job.asked == Asked.CANCEL:
                if await _discard(job, self._command):
                    await _write(job, JobState.CANCELLED)
            elif job.asked == Asked.PAUSE:
                await _write(job, JobState.PAUSED)
            elif job.state == JobState.RUNNING:
                # A node died, or the database was away at the end of the attempt.
                with contextlib.suppress(DatabaseError):
                    await _finish(job, job.num_attempts, JobEnd(text="Its end was not stored."))
            elif self._is_due(job):
                task = asyncio.create_task(_carry_out(job, self._command), name=f"job {job.pk}")
                task.add_done_callback(lambda _: on_end())
                self._running[job.pk] = (_turn(job), task)

    def _is_due(self, job: ModelJob) -> bool:
        is_free = all(turn != _turn(job) for turn, _ in self._running.values())
        next_at = job.next_attempt_at
        return is_free and (next_at is None or next_at <= timezone.now())

    async def _end(self, job_ids: list[int]) -> None:
        tasks = [self._running.pop(each)[1] for each in job_ids]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Progress:
    def __init__(self) -> None:
        self.stage = ""
        self.done_bytes = 0
        self.total_bytes: int | None = None
        self.stored: dict[str, object] = {}
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, line: JobLine) -> None:
        self.stage = line.stage[:200]
        self.done_bytes, self.total_bytes = line.done_bytes, line.total_bytes
        now_s = time.monotonic()
        if self._seen and self.done_bytes < self._seen[-1][1]:
            self._seen.clear()  # another stage has begun
        self._seen.append((now_s, self.done_bytes))
        while now_s - self._seen[0][0] > _SPEED_WINDOW_S:
            self._seen.popleft()

    def columns(self) -> dict[str, object]:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        elapsed_s = last_s - first_s
        return {
            "stage": self.stage,
            "done_bytes": self.done_bytes,
            "total_bytes": self.total_bytes,
            "bytes_per_s": (last - first) / elapsed_s if elapsed_s > 0 else 0.0,
        }


async def _carry_out(job: ModelJob, command: Sequence[str]) -> None:
    started_at = job.started_at or timezone.now()
    num_before = job.num_attempts
    num_attempts = num_before + 1
    await _write(
        job,
        JobState.RUNNING,
        started_at=started_at,
        num_attempts=num_attempts,
        next_attempt_at=None,
        error="",
    )
    _log(job, "job begins", attempt=num_attempts)
    progress = _Progress()
    writing = asyncio.create_task(_write_progress(job, progress))
    try:
        end = await run_job(_document(job), job.log_path, progress.take, command)
    except SecretLost as error:
        end = JobEnd(error=str(error))
    except OSError as error:
        end = JobEnd(text=f"The process could not start: {error.strerror}.")
    except asyncio.CancelledError:
        # The job was paused or cancelled, or the node ends: the attempt does not count.
        await asyncio.shield(_write(job, JobState.WAITING, num_attempts=num_before))
        raise
    except Exception as error:
        log.exception("job not followed", extra={"fields": {"job": str(job), "id": job.pk}})
        end = JobEnd(text=f"The node could not follow its process: {type(error).__name__}.")
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await _store(job, progress)
    await _finish(job, num_attempts, end)


async def _finish(job: ModelJob, num_attempts: int, end: JobEnd) -> None:
    error = end.error
    if end.result is not None:
        error = await asyncio.to_thread(_take_result, job, end.result)
        if not error:
            _log(job, "job done")
            return
    elif not error and num_attempts < _MAX_ATTEMPTS:
        pause_s = _PAUSES_S[num_attempts - 1]
        _log(job, "job interrupted", reason=end.text, pause_s=pause_s)
        await asyncio.to_thread(giving_back(wait_for_attempt), job, pause_s)
        return
    error = error or (
        f"{end.text} It was begun {num_attempts} times. The last lines of its log have the "
        f"reason: vinery job log {job.pk}"
    )
    await _fail(job, error)


async def _fail(job: ModelJob, error: str) -> None:
    _log(job, "job failed", reason=error)
    await _write(job, JobState.FAILED, error=error, ended_at=timezone.now())


async def _write_progress(job: ModelJob, progress: _Progress) -> None:
    while True:
        await asyncio.sleep(_WRITE_INTERVAL_S)
        await _store(job, progress)


async def _store(job: ModelJob, progress: _Progress) -> None:
    columns = progress.columns() if progress.stage else {}
    if columns != progress.stored:
        progress.stored = columns
        with contextlib.suppress(DatabaseError):
            await asyncio.to_thread(_update, job, columns)


async def _discard(job: ModelJob, command: Sequence[str]) -> bool:
    """Returns False if the process could not start: the next look tries again."""
    try:
        end = await run_job(_document(job, "discard"), job.log_path, lambda _: None, command)
    except OSError as error:
        _log(job, "job not discarded yet", reason=error.strerror)
        return False
    _log(job, "job cancelled", discarded=end.text)
    return True


def _document(job: ModelJob, action: str = "run") -> JobDocument:
    return JobDocument(
        kind=job.kind,
        action=action,
        job_id=job.pk,
        node_pid=os.getpid(),
        model=job.model.name,
        home=settings.VINERY_HOME,
        parameters=job.parameters,
        secret=secret_of(job) if action == "run" else "",
        **(_keys(job) if action == "run" else {}),
    )


def _keys(job: ModelJob) -> dict[str, Any]:
    if job.kind == JobKind.FETCH:
        authorities, own = settings.VINERY_AUTHORITY_SECRETS, settings.VINERY_HOST_KEY
        return {"authorities": authorities, "host_key": own}
    if job.kind != JobKind.BENCH:
        return {}
    run_dir, secret = Path(settings.VINERY_RUN_DIR), settings.VINERY_SOCKET_SECRET
    digest: str = job.parameters["settings_digest"]
    address = EngineAddress(job.model_id, settings_key(digest))
    return {
        "engine_key": socket_key(secret, engine_socket(run_dir, address)),
        "node_key": socket_key(secret, node_socket(run_dir)),
    }


def _turn(job: ModelJob) -> str:
    if job.kind == JobKind.FETCH and is_small(job.parameters["folder"]):
        return "small"  # web processes wait for them
    return _TURNS.get(job.kind, job.kind)


@giving_back
def _read_jobs(leads: Callable[[], bool]) -> dict[int, ModelJob]:
    """Return the jobs of this host that have not ended, the oldest first."""
    does_others = leads()
    own, fetches = str(host_id()), JobKind.FETCH
    found = ModelJob.objects.filter(state__in=UNFINISHED).select_related("model").order_by("pk")
    # A paused job that is to go on waits for its turn.
    paused = [job for job in found if job.state == JobState.PAUSED and job.asked == Asked.RUN]
    for job in paused:
        ModelJob.objects.filter(pk=job.pk, state=JobState.PAUSED, asked=Asked.RUN).update(
            state=JobState.WAITING
        )
        job.state = JobState.WAITING
    return {
        job.pk: job
        for job in found
        if (job.parameters["host"] == own if job.kind == fetches else does_others)
    }


async def _write(job: ModelJob, state: JobState, **columns: object) -> None:
    """Write a state, unless the job has it. A database that is unavailable is tried again with the
    next change."""
    if job.state == state and not columns:
        return
    if state == JobState.CANCELLED:
        columns["ended_at"] = timezone.now()
    with contextlib.suppress(DatabaseError):
        await asyncio.to_thread(_update, job, {"state": state, **columns})


@giving_back
def _update(job: ModelJob, columns: dict[str, object]) -> None:
    if columns.get("state") in (JobState.FAILED, JobState.CANCELLED):
        columns["secret"] = ""
    # Another host may have begun a later attempt.
    ModelJob.objects.filter(pk=job.pk, num_attempts__lte=job.num_attempts).update(**columns)
    if "state" in columns:
        for name, value in columns.items():
            setattr(job, name, value)
        if job.kind in FOLDER_KINDS:
            _note_state(job)
        change_signal.send()


def _note_state(job: ModelJob) -> None:
    if job.state == JobState.RUNNING:
        record_event(job.model_id, "pulling" if job.kind == JobKind.PULL else "converting")
    elif job.state in (JobState.FAILED, JobState.CANCELLED):
        record_event(job.model_id, "failed", job.error or f"The {job.kind} was cancelled.")


@giving_back
def _take_result(job: ModelJob, result: Mapping[str, Any]) -> str:
    """Store the result. Returns what is wrong with it, for administrators; empty: nothing."""
    try:
        return take_result(job, result)
    except DatabaseError:
        raise
    except Exception:  # begun again, the job would give the same result, without end
        log.exception("result not stored", extra={"fields": {"job": str(job), "id": job.pk}})
        return "Its result could not be stored. The log of the node has the reason: vinery logs"
    finally:
        change_signal.send()


def _log(job: ModelJob, event: str, **fields: object) -> None:
    log.info(event, extra={"fields": {"job": str(job), "id": job.pk, **fields}})


@dataclass(frozen=True, slots=True)
class JobEnd:
    result: dict[str, Any] | None = None
    error: str = ""
    text: str = ""  # of an end without result and error


def job_environment(document: JobDocument) -> dict[str, str]:
    """Return the variables of the node that the process of a job reads: tokens and credentials for
    the pulls that need them."""
    asked = document.parameters
    match document.kind, asked.get("kind"):
        case _ if document.action == "discard":
            return environment_with()
        case JobKind.CONVERT, _:
            return environment_with("PIP_", "VINERY_JOB_", *NETWORK_VARIABLES)
        case JobKind.PULL | JobKind.FETCH, "hub":
            return environment_with(
                "HF_", "XDG_CACHE_HOME", "VINERY_JOB_NETWORKS", *NETWORK_VARIABLES
            )
        case JobKind.PULL, "archive":
            own = "AWS_" if str(asked.get("url")).startswith("s3:") else "VINERY_JOB_NETWORKS"
            return environment_with(own, *NETWORK_VARIABLES)
    return environment_with()


async def run_job(
    document: JobDocument,
    log_path: Path,
    on_progress: Callable[[JobLine], None],
    command: Sequence[str] = COMMAND,
) -> JobEnd:
    """Run a process to its end, which comes with a cancellation, too. Raises OSError if it cannot
    start."""
    with opened_log(log_path, DEVNULL) as stderr:
        process = ChildProcess(
            (*command, document.kind),
            "job",
            environment=job_environment(document),
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
        )
        try:
            await process.write(document.to_json())
            process.close_input()
            return await _read_to_end(process, on_progress, stderr)
        finally:
            # First the process, which may clean up, then its own children.
            await asyncio.shield(process.end(_END_TIMEOUT_S))


async def _read_to_end(
    process: ChildProcess, on_progress: Callable[[JobLine], None], log_fd: int | None
) -> JobEnd:
    output, end = await process.output(_MAX_LINE_BYTES), None
    while text := await _read_line(output):
        try:
            line = msgspec.json.decode(text, type=JobLine)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            with contextlib.suppress(OSError):
                os.write(log_fd or DEVNULL, text[:_MAX_LOGGED_BYTES])
            continue
        if line.stage:
            on_progress(line)
        elif line.error or line.result is not None:
            end = JobEnd(line.result, line.error)
    status = await process.wait()
    return end or JobEnd(text=f"The process ended with status {status}.")


async def _read_line(output: asyncio.StreamReader) -> bytes:
    """Return a line; empty at the end. Of a line that is too long, another text."""
    try:
        return await output.readline()
    except ValueError:
        return b"A line of its output was too long.\n"
