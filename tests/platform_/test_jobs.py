"""The jobs process runs jobs from files and from Redis, and ends on SIGTERM."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from celery import Celery
from django.conf import settings

from tests.conftest import clean_environment, until
from vinery.celery import app
from vinery.config.home import Home

# `vinery jobs` with three more tasks. The clock schedules one of them.
_WORKER = """
import sys, time
from pathlib import Path
from vinery.cli.shape import load_django
load_django()
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


@contextmanager
def worker(folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a jobs process, and wait until its clock has ticked."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(folder)], env=clean_environment() | dict(environment)
    )
    try:
        until((folder / "tick").exists)
        yield process
    finally:
        process.kill()
        process.wait()


def send(home: Path, task: str, *arguments: str, redis_url: str = "") -> None:
    """Send a message from this process to the worker of this home or of Redis."""
    if redis_url:
        sender = Celery(broker=redis_url)
    else:
        sender = Celery(broker="filesystem://localhost")
        sender.conf.broker_transport = "vinery.broker:Transport"
        sender.conf.broker_transport_options = {
            "data_folder_in": str(home / "broker" / "messages"),
            "data_folder_out": str(home / "broker" / "messages"),
            "control_folder": str(home / "broker" / "control"),
        }
    sender.send_task(task, args=arguments, queue=settings.CELERY_TASK_DEFAULT_QUEUE)


def test_it_runs_jobs_from_files_and_ends_with_no_message_taken(
    tmp_path: Path, platform_home: Home
) -> None:
    home = platform_home.path
    send(home, "tests.write", str(tmp_path / "before"), "sent before the start")

    with worker(tmp_path, {"VINERY_HOME": str(home)}) as process:
        until((tmp_path / "before").exists)
        send(home, "tests.write", str(tmp_path / "file"), "sent after the start")
        until((tmp_path / "file").exists)
        assert psutil.Process(process.pid).children(recursive=True) == []
        # The worker may have just taken the message of the next tick, so it is not killed.
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    messages = home / "broker" / "messages"
    assert not [file for file in messages.iterdir() if file.suffix == ".taken"]


@pytest.mark.stores
def test_it_runs_a_job_from_redis(tmp_path: Path, platform_home: Home, redis_url: str) -> None:
    home = platform_home.path

    with worker(tmp_path, {"VINERY_HOME": str(home), "REDIS_URL": redis_url}):
        send(home, "tests.write", str(tmp_path / "file"), "done", redis_url=redis_url)
        until((tmp_path / "file").exists)

    assert not (home / "broker" / "messages").exists()


def test_a_job_that_hangs_does_not_delay_the_end(tmp_path: Path, platform_home: Home) -> None:
    home = platform_home.path
    with worker(tmp_path, {"VINERY_HOME": str(home)}) as process:
        send(home, "tests.hang", str(tmp_path / "hanging"))
        until((tmp_path / "hanging").exists)

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == 0


def test_every_scheduled_task_exists() -> None:
    app.loader.import_default_modules()

    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled
    assert scheduled <= set(app.tasks)


@pytest.mark.django_db
@pytest.mark.stores
def test_usage_of_dead_processes_is_recovered() -> None:
    app.loader.import_default_modules()

    app.tasks["vinery_accounts.tasks.recover_usage"].apply(throw=True)
