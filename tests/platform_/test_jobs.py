"""Jobs run from memory and from Redis, without further processes, and end on SIGTERM."""

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
from tests.tables import table
from vinery_platform.celery import app
from vinery_platform.config.home import Home

# `vinery jobs` with one more task, which the clock schedules, and which takes some seconds.
_WORKER = """
import sys, time
from pathlib import Path
from vinery_platform.cli.shape import load_django
load_django()
from vinery_platform.celery import app

tick, seconds = sys.argv[1:]

@app.task(name="tests.touch")
def touch(file):
    Path(file).touch()
    time.sleep(int(seconds))

app.conf.beat_schedule = {"tick": {"task": "tests.touch", "args": [tick], "schedule": 0.1}}
from vinery_platform.cli import main
sys.exit(main(["jobs"]))
"""


@contextmanager
def worker(
    folder: Path, environment: Mapping[str, str], seconds: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a jobs process, and wait until its clock has ticked."""
    tick = folder / f"tick-{seconds}"
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tick), str(seconds)],
        env=clean_environment() | dict(environment),
    )
    try:
        until(tick.exists)
        yield process
    finally:
        process.kill()
        process.wait()


@table("seconds", [0, 600])
def test_it_runs_jobs_alone_and_ends_although_one_hangs(
    tmp_path: Path, platform_home: Home, seconds: int
) -> None:
    with worker(tmp_path, {"VINERY_HOME": str(platform_home.path)}, seconds) as process:
        assert psutil.Process(process.pid).children(recursive=True) == []

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == 0


@pytest.mark.stores
def test_it_runs_a_job_from_redis(tmp_path: Path, platform_home: Home, redis_url: str) -> None:
    environment = {"VINERY_HOME": str(platform_home.path), "REDIS_URL": redis_url}
    file = tmp_path / "file"
    with worker(tmp_path, environment):
        queue = settings.CELERY_TASK_DEFAULT_QUEUE
        Celery(broker=redis_url).send_task("tests.touch", args=[str(file)], queue=queue)
        until(file.exists)


def test_every_scheduled_task_exists() -> None:
    app.loader.import_default_modules()

    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled
    assert scheduled <= set(app.tasks)
