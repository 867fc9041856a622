"""A log file stays within its bounds, and is read backwards and followed, whatever happens."""

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import clean_environment
from tests.tables import table
from vinery_serving.processes.logs.file import (
    LogBounds,
    LogFile,
    delete_former_engines,
    engine_name,
    log_path,
    log_paths,
    process_of,
)
from vinery_serving.processes.logs.lines import LogEntry, json_line, read_entry, time_text
from vinery_serving.processes.logs.reading import LogFollower, last_lines

BOUNDS = LogBounds(max_bytes=100, num_files=3)

# Writes many numbered lines to a log that is small.
_WRITER = """
import sys
from pathlib import Path
from vinery_serving.processes.logs.file import LogBounds, LogFile

file = LogFile(Path(sys.argv[1]), LogBounds(4000, 1000))
for number in range(2000):
    file.write(f"{sys.argv[2]}-{number}\\n".encode())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "web-1.log"


def contents(path: Path) -> list[str]:
    """The texts of all files, the present one first."""
    return [file.read_text() for file in sorted(path.parent.iterdir())]


@pytest.mark.parametrize(("num_files", "left"), [(3, ["9", "8", "7"]), (1, ["9"])])
def test_a_full_file_gets_a_number_or_goes(path: Path, num_files: int, left: list[str]) -> None:
    file = LogFile(path, LogBounds(max_bytes=100, num_files=num_files))

    for number in range(10):
        assert file.write(f"{number}".encode() * 59 + b"\n")

    assert [text[0] for text in contents(path)] == left
    assert path.stat().st_mode & 0o777 == 0o600


def test_files_of_an_earlier_larger_bound_are_deleted(path: Path) -> None:
    for number in (3, 4, 5):
        path.with_name(f"{path.name}.{number}").write_text("old")
    file = LogFile(path, BOUNDS)

    for _ in range(2):
        file.write(b"x" * 90 + b"\n")

    assert len(contents(path)) == 2


def test_only_what_is_written_to_no_file_or_folder_is_lost(path: Path, tmp_path: Path) -> None:
    file = LogFile(path, BOUNDS)
    file.write(b"lost\n")
    path.unlink()
    assert file.write(b"new\n")

    assert contents(path) == ["new\n"]

    path = tmp_path / "logs" / "web-1.log"
    file = LogFile(path, BOUNDS)
    assert not file.write(b"lost\n")
    path.parent.mkdir()
    assert file.write(b"kept\n")

    assert path.read_text() == "kept\n"


def test_native_code_may_write_to_the_descriptor_also_after_a_rotation(path: Path) -> None:
    file = LogFile(path, BOUNDS)
    assert file.fd is not None
    os.write(file.fd, b"x" * 150 + b"\n")

    file.check()
    os.write(file.fd, b"new\n")

    assert path.read_text() == "new\n"


def test_processes_that_write_together_lose_and_mix_no_line(path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), f"{number}"], env=clean_environment()
        )
        for number in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]

    lines = Counter(line for text in contents(path) for line in text.splitlines())

    assert lines == Counter(f"{writer}-{number}" for writer in range(3) for number in range(2000))


def test_a_disk_that_takes_half_a_line_does_not_mix_it_with_the_next(path: Path) -> None:
    file = LogFile(path, LogBounds())
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, old_limit[1]))
        half = file.write(b"0123456789\n")
        none = file.write(b"lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)

    assert not half and not none
    assert file.write(b"next\n")
    assert path.read_text() == "01234567\nnext\n"


@table("model", ["tiny-chat", "org/model:7b", "a..b"])
def test_a_model_has_a_file_in_the_folder_whatever_its_name(tmp_path: Path, model: str) -> None:
    path = log_path(tmp_path, engine_name(model))

    assert path.parent == tmp_path
    assert process_of(path) == f"engine-{model}"


def test_logs_of_many_removed_models_are_deleted_the_oldest_first(tmp_path: Path) -> None:
    for number in range(25):
        path = log_path(tmp_path, engine_name(f"m{number}"))
        path.touch()
        path.with_name(f"{path.name}.1").touch()
        os.utime(path, (number, number))
    other = log_path(tmp_path, "web-1")
    other.touch()
    os.utime(other, (0, 0))

    delete_former_engines(tmp_path, ["m0"])

    kept = {f"engine-m{number}" for number in (0, *range(5, 25))}
    assert set(map(process_of, log_paths(tmp_path))) == kept | {"web-1"}
    assert len(list(tmp_path.iterdir())) == 2 * 21 + 1


STACK = b"Fatal Python error: Segmentation fault\n"


def line(second: int, message: str = "loaded") -> bytes:
    return f"{time_text(second)} INFO web-1 room.part: {message}\n".encode()


def messages(entries: list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


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


def test_a_line_of_no_logger_has_the_time_before_it_and_no_escapes_or_keys(path: Path) -> None:
    path.write_bytes(line(1) + STACK + b"  File a.py\n" + line(2) + b"late\n")

    found = last_lines(path, 10)
    assert [entry.time for entry in found] == [time_text(second) for second in (1, 1, 1, 2, 2)]
    assert [entry.level for entry in found] == ["INFO", "WARNING", "WARNING", "INFO", "WARNING"]
    assert {entry.process for entry in found} == {"web-1"}

    path.write_bytes(b"\x1b[2Jvny_live_0123456789abcdefghijklmnopqrstuvwxyz\xff\n")

    text = last_lines(path, 1)[0].text()
    assert text.isprintable()
    assert "0123456789" not in text


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


def test_a_log_that_begins_later_and_half_a_line_are_followed_once_they_come(path: Path) -> None:
    follower = LogFollower(path)
    assert follower.read() == []

    LogFile(path, LogBounds()).write(line(1))
    assert messages(follower.read() + follower.read()) == ["loaded"]

    whole = line(1)
    path.write_bytes(b"")
    follower = LogFollower(path)
    with path.open("ab", buffering=0) as file:
        file.write(whole[:20])
        assert follower.read() == []
        file.write(whole[20:])

    assert messages(follower.read()) == ["loaded"]
