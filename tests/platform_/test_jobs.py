"""Jobs run from files, whose messages are taken once, and from Redis, and end on SIGTERM."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import Empty

import psutil
import pytest
from celery import Celery
from django.conf import settings
from kombu import Connection

from tests.conftest import clean_environment, until
from vinery_platform import celery
from vinery_platform.celery import Channel, app
from vinery_platform.config.home import Home

# `vinery jobs` with three more tasks. The clock schedules one of them.
_WORKER = """
import sys, time
from pathlib import Path
from vinery_platform.cli.shape import load_django
load_django()
from vinery_platform.celery import app

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
from vinery_platform.cli import main
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


def folders_in(folder: Path) -> dict[str, str]:
    """The options of a broker whose messages are files."""
    messages, control = str(folder / "messages"), str(folder / "control")
    return {"data_folder_in": messages, "data_folder_out": messages, "control_folder": control}


def send(home: Path, task: str, *arguments: str, redis_url: str = "") -> None:
    """Send a message from this process to the worker of this home or of Redis."""
    if redis_url:
        sender = Celery(broker=redis_url)
    else:
        sender = Celery(broker="filesystem://localhost")
        sender.conf.broker_transport = "vinery_platform.celery:Transport"
        sender.conf.broker_transport_options = folders_in(home / "broker")
    sender.send_task(task, args=arguments, queue=settings.CELERY_TASK_DEFAULT_QUEUE)


def test_it_runs_jobs_from_files_and_leaves_none_taken(tmp_path: Path, platform_home: Home) -> None:
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


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    options = folders_in(tmp_path)
    transport = "vinery_platform.celery:Transport"
    connection = Connection(
        "filesystem://localhost", transport=transport, transport_options=options
    )
    return connection.channel()


def take_all(channel: Channel, queue: str) -> list[object]:
    taken = []
    while True:
        try:
            taken.append(channel._get(queue))
        except Empty:
            return taken


def test_whole_messages_arrive_in_order_in_their_queue(channel: Channel, tmp_path: Path) -> None:
    for number in range(20):
        channel._put("jobs", {"number": number})

    assert take_all(channel, "jobs") == [{"number": number} for number in range(20)]
    assert list((tmp_path / "messages").iterdir()) == [], "taken messages leave a file"

    (tmp_path / "messages" / "1_x.jobs.msg.draft").write_text('{"half')
    assert take_all(channel, "jobs") == []
    assert channel._size("jobs") == 0

    channel._put("jobs", {"for": "jobs"})
    channel._put("other", {"for": "other"})
    assert take_all(channel, "other") == [{"for": "other"}]
    assert channel._size("jobs") == 1


def test_workers_that_race_take_each_message_once(channel: Channel) -> None:
    for number in range(200):
        channel._put("jobs", number)

    with ThreadPoolExecutor(4) as pool:
        taken = [*chain(*pool.map(lambda _: take_all(channel, "jobs"), range(4)))]

    assert sorted(taken) == list(range(200))  # type: ignore[type-var]


def test_own_messages_are_taken_at_once(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery, "_POLLING_INTERVAL_S", 600.0)
    transport = channel.connection
    taken: list[object] = []
    channel.connection.cycle.get = lambda deliver, timeout: deliver(channel._get("jobs"), "jobs")
    transport._deliver = lambda message, queue: taken.append(message)

    def drain() -> None:
        while not taken:
            with contextlib.suppress(TimeoutError):
                transport.drain_events(None)

    worker = threading.Thread(target=drain)
    worker.start()
    channel._put("jobs", {"number": 1})
    worker.join(60)

    assert taken == [{"number": 1}]
