"""The jobs process does what it is told, by files and by Redis, and ends when it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from django.conf import settings

from tests.conftest import clean_environment, until
from tests.platform_.scripts import run_python
from vinery.celery import app

# `vinery jobs` with three more tasks, one of which the clock asks for.
_WORKER = """
import sys, time
from pathlib import Path
from vinery.cli.shape import start_django
start_django()
from vinery.celery import app

@app.task(name="tests.write")
def write(file, text):
    Path(file).write_text(text)

@app.task(name="tests.hang")
def hang(file):
    Path(file).write_text("hangs")
    time.sleep(600)

folder = Path(sys.argv[1])
app.conf.beat_schedule = {
    "tick": {"task": "tests.write", "args": [str(folder / "tick"), "tock"], "schedule": 0.1}
}
from vinery.cli import main
sys.exit(main(["jobs"]))
"""
_SEND = """
import sys
from vinery.cli.shape import start_django
start_django()
from vinery.celery import app
app.send_task(sys.argv[1], args=sys.argv[2:])
"""


@contextmanager
def worker(folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A jobs process whose clock has ticked."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(folder)],
        env=clean_environment() | dict(environment),
    )
    try:
        until((folder / "tick").exists)
        yield process
    finally:
        process.kill()
        process.wait()


def send(environment: Mapping[str, str], task: str, *arguments: str) -> None:
    sent = run_python("-c", _SEND, task, *arguments, environment=environment)
    assert sent.returncode == 0, sent.stderr


def does_a_job(folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether a message that one process sends makes the worker write a file."""
    send(environment, "tests.write", str(folder / "file"), "done")
    return until((folder / "file").exists)


def test_it_does_a_job_by_files(tmp_path: Path) -> None:
    environment = {"VINERY_HOME": str(tmp_path / "home")}

    with worker(tmp_path, environment) as process:
        assert does_a_job(tmp_path, environment)
        # Not killed in the middle of the next tick, whose message it has just taken.
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    messages = tmp_path / "home" / "broker" / "messages"
    assert not [file for file in messages.iterdir() if file.suffix == ".taken"]


def test_it_does_a_job_by_redis(tmp_path: Path, redis_url: str) -> None:
    environment = {"VINERY_HOME": str(tmp_path / "home"), "REDIS_URL": redis_url}

    with worker(tmp_path, environment):
        assert does_a_job(tmp_path, environment)

    assert not (tmp_path / "home" / "broker" / "messages").exists()


def test_a_job_sent_before_the_start_is_done_after_it(tmp_path: Path) -> None:
    environment = {"VINERY_HOME": str(tmp_path / "home")}
    send(environment, "tests.write", str(tmp_path / "file"), "done")

    with worker(tmp_path, environment):
        until((tmp_path / "file").exists)


def test_an_idle_worker_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    with worker(tmp_path, {"VINERY_HOME": str(tmp_path / "home")}) as process:
        family = psutil.Process(process.pid).children(recursive=True)

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == 0
        assert family == []


def test_a_job_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    environment = {"VINERY_HOME": str(tmp_path / "home")}
    with worker(tmp_path, environment) as process:
        send(environment, "tests.hang", str(tmp_path / "hanging"))
        until((tmp_path / "hanging").exists)

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == 0


def test_everything_that_the_clock_asks_for_exists() -> None:
    app.loader.import_default_modules()

    asked_for = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert asked_for
    assert asked_for <= set(app.tasks)


@pytest.mark.django_db
def test_usage_of_dead_processes_is_looked_for() -> None:
    app.loader.import_default_modules()

    app.tasks["accounts.tasks.recover_usage"].apply(throw=True)
