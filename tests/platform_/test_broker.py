"""Messages in files are complete, in order, and taken once."""

import contextlib
import threading
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection

from vinery import broker
from vinery.broker import Channel


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    options = {
        "data_folder_in": str(tmp_path / "messages"),
        "data_folder_out": str(tmp_path / "messages"),
        "control_folder": str(tmp_path / "control"),
    }
    connection = Connection(
        "filesystem://localhost", transport="vinery.broker:Transport", transport_options=options
    )
    return connection.channel()


def take_all(channel: Channel, queue: str) -> list[object]:
    taken = []
    while True:
        try:
            taken.append(channel._get(queue))
        except Empty:
            return taken


def test_messages_arrive_in_the_order_in_which_they_were_sent(
    channel: Channel, tmp_path: Path
) -> None:
    for number in range(20):
        channel._put("jobs", {"number": number})

    assert take_all(channel, "jobs") == [{"number": number} for number in range(20)]
    assert list((tmp_path / "messages").iterdir()) == [], "taken messages leave a file"


def test_a_queue_gets_its_own_messages_only(channel: Channel) -> None:
    channel._put("jobs", {"for": "jobs"})
    channel._put("other", {"for": "other"})

    assert take_all(channel, "other") == [{"for": "other"}]
    assert channel._size("jobs") == 1


def test_an_unfinished_message_is_not_seen(channel: Channel, tmp_path: Path) -> None:
    (tmp_path / "messages" / "1_x.jobs.msg.draft").write_text('{"half')

    assert take_all(channel, "jobs") == []
    assert channel._size("jobs") == 0


def test_workers_that_race_take_each_message_once(channel: Channel) -> None:
    for number in range(200):
        channel._put("jobs", number)
    taken: list[object] = []

    threads = [
        threading.Thread(target=lambda: taken.extend(take_all(channel, "jobs"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == list(range(200))  # type: ignore[type-var]


def test_a_message_of_this_process_does_not_wait_for_the_next_look(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_POLLING_INTERVAL_S", 600.0)
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
