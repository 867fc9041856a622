"""Logs are read backwards and followed, while they are written, rotated and removed."""

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.logs.entries import LogEntry, read_entry
from vinery_serving.logs.file import LogBounds, LogFile
from vinery_serving.logs.lines import json_line, time_text
from vinery_serving.logs.reading import LogFollower, last_lines

STACK = b"Fatal Python error: Segmentation fault\n"


def line(second: int, message: str = "loaded") -> bytes:
    return f"{time_text(second)} INFO web-1 room.part: {message}\n".encode()


def messages(entries: list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "web-1.log"


def test_a_line_of_either_format_is_the_same_event() -> None:
    text = b"1970-01-01T00:00:01.000Z ERROR web-1 room.part: failed status=500"
    names = ("time", "level", "process", "logger", "message")
    document = dict(zip(names, text.decode().split(" ", 4), strict=True)) | {"logger": "room.part"}

    assert read_entry(text) == read_entry(json_line(document).encode())


@table(
    "foreign",
    [
        b"",
        b"{",
        b"{}",
        b"[" * 100_000,
        b'{"time": 1, "level": "INFO", "process": "a", "logger": "b", "message": "c"}',
        b'{"time": "now", "level": "INFO", "process": "a", "logger": "b", "message": "c"}',
        b"1970-01-01T00:00:01.000Z LOUD web-1 room: text",
        b"\xff\xfe",
    ],
)
def test_any_other_line_is_none(foreign: bytes) -> None:
    assert read_entry(foreign) is None


def test_a_line_of_no_logger_has_the_time_of_the_line_before_it(path: Path) -> None:
    path.write_bytes(line(1) + STACK + b"  File a.py\n" + line(2) + b"late\n")

    found = last_lines(path, 10)

    assert [entry.time for entry in found] == [time_text(second) for second in (1, 1, 1, 2, 2)]
    assert [entry.level for entry in found] == ["INFO", "WARNING", "WARNING", "INFO", "WARNING"]
    assert {entry.process for entry in found} == {"web-1"}


def test_a_line_of_native_code_neither_controls_the_terminal_nor_shows_a_key(path: Path) -> None:
    path.write_bytes(b"\x1b[2Jvny_live_0123456789abcdefghijklmnopqrstuvwxyz\xff\n")

    text = last_lines(path, 1)[0].text()

    assert text.isprintable()
    assert "0123456789" not in text


def test_the_last_lines_are_those_of_older_files_too(path: Path) -> None:
    file = LogFile(path, LogBounds(max_bytes=120, num_files=4))
    for second in range(6):
        file.write(line(second, f"event {second}"))

    assert messages(last_lines(path, 5)) == [f"event {second}" for second in range(1, 6)]
    assert len(last_lines(path, 100)) == 6


def test_last_lines_take_little_memory_however_long_they_are(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        last_lines(path, 10)

    path.write_bytes((b"x" * 3000 + b"\n") * 1000)
    assert sum(len(each.message) for each in last_lines(path, 1000)) <= 256 * 1024

    path.write_bytes(b"x" * 1_000_000)  # without line breaks
    assert all(len(message) < 5000 for message in messages(last_lines(path, 100)))


@given(
    st.lists(st.sampled_from([b"a", b"foreign", b"x" * 200, b"\xff"]), max_size=60),
    st.integers(100, 2000),
)
def test_backwards_and_forwards_are_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "web-1.log"
    file = LogFile(path, LogBounds(max_bytes, num_files=100))
    follower = LogFollower(path)
    for second, text in enumerate(texts):
        file.write(text + b"\n" if text == b"foreign" else line(second, text.hex()))

    forwards = []
    while new := follower.read():
        forwards += new

    assert messages(last_lines(path, 1000)) == messages(forwards)
    assert len(forwards) == len(texts)


def test_lines_before_and_after_a_rotation_are_followed(path: Path) -> None:
    file = LogFile(path, LogBounds(max_bytes=200, num_files=50))
    follower = LogFollower(path)
    seconds, seen = count(), []
    for _ in range(20):
        for _ in range(5):
            file.write(line(next(seconds)))
        while new := follower.read():
            seen += [entry.time for entry in new]

    assert seen == [time_text(second) for second in range(100)]


def test_a_follower_that_was_left_behind_goes_on_with_the_present_file(path: Path) -> None:
    file = LogFile(path, LogBounds(max_bytes=100, num_files=2))
    file.write(line(0))
    follower = LogFollower(path)
    for second in range(1, 50):
        file.write(line(second))

    seen = [entry.time for entry in (*follower.read(), *follower.read(), *follower.read())]

    assert seen[-1] == time_text(49)
    assert seen == sorted(set(seen))


def test_a_removed_or_emptied_file_is_followed_from_its_new_beginning(path: Path) -> None:
    file = LogFile(path, LogBounds())
    file.write(line(1))
    follower = LogFollower(path)
    path.unlink()
    file.write(line(2, "removed"))
    assert messages(follower.read() + follower.read()) == ["removed"]

    os.truncate(path, 0)
    file.write(line(3, "new"))

    assert messages(follower.read()) == ["new"]


def test_a_log_that_begins_later_is_followed(path: Path) -> None:
    follower = LogFollower(path)
    assert follower.read() == []

    LogFile(path, LogBounds()).write(line(1))

    assert messages(follower.read() + follower.read()) == ["loaded"]


def test_half_a_line_is_shown_when_its_other_half_has_come(path: Path) -> None:
    whole = line(1)
    path.write_bytes(b"")
    follower = LogFollower(path)
    with path.open("ab", buffering=0) as file:
        file.write(whole[:20])
        assert follower.read() == []
        file.write(whole[20:])

    assert messages(follower.read()) == ["loaded"]
