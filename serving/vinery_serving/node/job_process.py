"""One process of a job, from its start to its end, as the node sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final

from vinery_serving.models.jobs import JobDocument
from vinery_serving.node.starting import engine_environment
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.logs.file import open_log

COMMAND: Final = (sys.executable, "-m", "vinery_serving.models.jobs")
# How long a process has to end by itself when it is asked to.
_END_TIMEOUT_S: Final = 5.0
# A line of progress is short; a result may have a table.
_MAX_LINE_BYTES: Final = 1 << 20
# Settings of the libraries that fetch and install, beside those of engines.
_PASSED_ON: Final = ("HF_", "AWS_", "PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "VINERY_JOB_")
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a process has ended: with a result, with an error, or by a signal or mistake."""

    result: dict[str, Any] | None = None
    error: str = ""
    text: str = ""  # of an end without result and error


def job_environment() -> dict[str, str]:
    """Return the variables of the node that the libraries of jobs read, tokens of hubs included."""
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PASSED_ON) or name.lower() in _PROXIES
    }
    return engine_environment() | passed_on


async def run_job(
    document: JobDocument,
    log_path: Path,
    on_progress: Callable[[dict[str, Any]], None],
    command: Sequence[str] = COMMAND,
) -> JobEnd:
    """Run a process to its end, which comes with a cancellation, too. Raises OSError if it cannot
    start."""
    with _log_file(log_path) as stderr:
        process = ChildProcess(
            (*command, document.kind),
            "job",
            environment=job_environment(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
        )
    try:
        await process.write(document.to_json())
        process.close_input()
        return await _read_to_end(process, on_progress)
    finally:
        # First the one, which may clean up, then its own children.
        await asyncio.shield(process.end(_END_TIMEOUT_S))


async def _read_to_end(
    process: ChildProcess, on_progress: Callable[[dict[str, Any]], None]
) -> JobEnd:
    output, end = await process.output(_MAX_LINE_BYTES), None
    while line := await output.readline():
        values = json.loads(line)
        if "stage" in values:
            on_progress(values)
        else:
            end = JobEnd(values.get("result"), values.get("error", ""))
    status = await process.wait()
    return end or JobEnd(text=f"The process ended with status {status}.")


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[int]:
    try:
        fd = open_log(path)
    except OSError:
        yield DEVNULL
        return
    try:
        yield fd
    finally:
        os.close(fd)
