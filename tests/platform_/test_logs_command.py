"""`vinery logs`: one view of the logs of all processes, without a running server."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.tables import table
from vinery_platform.cli import commands
from vinery_platform.cli.logs import since
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name, log_path
from vinery_serving.processes.logs.lines import json_line, time_text

Show = Callable[..., tuple[int, list[str], str]]


def write(folder: Path, process: str, second: float, message: str, level: str = "INFO") -> None:
    line = f"{time_text(second)} {level} {process} room: {message}\n"
    LogFile(log_path(folder, process), LogBounds()).write(line.encode())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VINERY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "logs"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def show(folder: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    """Run the command. Returns status, lines and what it has written to standard error."""

    def run(*words: str) -> tuple[int, list[str], str]:
        status = commands.run(["logs", *words])
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return run


@pytest.fixture
def busy(folder: Path) -> Path:
    write(folder, "web-1", 1, "one")
    write(folder, "node", 2, "engine ready model=tiny pid=1")
    write(folder, "web-2", 3, "three", "ERROR")
    write(folder, engine_name("org/tiny"), 4, "four")
    write(folder, engine_name("tiny"), 5, "five")
    write(folder, "node", 6, "engine ready model=org/tiny pid=2")
    write(folder, "web-1", 7, "seven", "WARNING")
    write(folder, "node", 8, "engine died model=broken")
    return folder


def test_lines_of_all_processes_are_in_the_order_of_their_times(busy: Path, show: Show) -> None:
    status, lines, _ = show()

    assert status == 0
    assert lines == sorted(lines)
    assert len(lines) == 8
    assert lines[0] == "1970-01-01T00:00:01.000Z INFO web-1 room: one"


@table(
    "words, expected",
    [
        (("-n", "2"), ["seven", "engine died model=broken"]),
        (("--process", "web"), ["one", "three", "seven"]),
        (("--process", "web-2"), ["three"]),
        (("--process", "engine"), ["four", "five"]),
        (("--level", "warning"), ["three", "seven"]),
        (("--level", "error"), ["three"]),
        (("--model", "tiny"), ["engine ready model=tiny pid=1", "five"]),
        (("--model", "org/tiny"), ["four", "engine ready model=org/tiny pid=2"]),
        (("--model", "broken"), ["engine died model=broken"]),  # it never had an engine
        (("--since", "1970-01-01T00:00:07"), ["seven", "engine died model=broken"]),
        (("--since", "1h"), []),
        (("--process", "web", "--level", "error", "-n", "1"), ["three"]),
    ],
)
def test_lines_are_selected(
    busy: Path, show: Show, words: tuple[str, ...], expected: list[str]
) -> None:
    status, lines, _ = show(*words)

    assert status == 0
    assert [line.rpartition("room: ")[2] for line in lines] == expected


def test_json_has_one_object_a_line(folder: Path, show: Show) -> None:
    document = {"time": time_text(1), "level": "INFO", "process": "web-1", "logger": "room"}
    document |= {"message": "request", "status": 200}
    LogFile(log_path(folder, "web-1"), LogBounds()).write(json_line(document).encode() + b"\n")

    assert json.loads(show("--json")[1][0]) == document
    assert show()[1] == ["1970-01-01T00:00:01.000Z INFO web-1 room: request status=200"]


@table("what", ["model", "process"])
def test_what_has_no_log_is_named_with_what_there_is(busy: Path, show: Show, what: str) -> None:
    status, lines, error = show(f"--{what}", "gone")

    assert (status, lines) == (1, [])
    assert f"no log of the {what} gone" in error
    assert "web-1, web-2" in error
    assert error.count("\n") == 1


def test_without_logs_it_names_what_to_do_and_creates_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: Path, show: Show
) -> None:
    def refuse(folder: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr("vinery_platform.cli.logs.log_paths", refuse)
        status, lines, error = show()
    assert (status, lines) == (1, [])
    assert "Use the user that runs the server" in error

    monkeypatch.setenv("VINERY_HOME", str(tmp_path / "none"))
    status, lines, error = show()
    assert (status, lines) == (1, [])
    assert "There are no logs in" in error
    assert not (tmp_path / "none").exists()


@table(
    "text, second",
    [
        ("30s", 99_970),
        ("10m", 99_400),
        ("2h", 92_800),
        ("1d", 13_600),
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        *((text, None) for text in ("", "soon", "5", "-1h", "9999999d", "2026-13-01")),
    ],
)
def test_a_time_is_absolute_or_a_time_ago(text: str, second: int | None) -> None:
    if second is not None:
        assert since(text, clock=lambda: 100_000.0) == time_text(second)
        return
    with pytest.raises(argparse.ArgumentTypeError, match="neither"):
        since(text)


def test_new_lines_are_followed_across_rotations_and_new_processes(folder: Path) -> None:
    write(folder, "web-1", 1, "before")
    following = subprocess.Popen(
        [sys.executable, "-m", "vinery_platform.cli", "logs", "--follow"],
        env=clean_environment() | {"VINERY_HOME": str(folder.parent)},
        stdout=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert following.stdout is not None
        assert following.stdout.readline().endswith("before\n")
        file = LogFile(log_path(folder, "web-1"), LogBounds(max_bytes=500, num_files=50))
        for second in range(2, 52):
            file.write(f"{time_text(second)} INFO web-1 room: {second}\n".encode())
        seen = [following.stdout.readline().split()[-1] for _ in range(50)]
        write(folder, engine_name("new"), 60, "a new process")
        assert seen == [str(second) for second in range(2, 52)]
        assert following.stdout.readline().endswith("a new process\n")

        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
    finally:
        following.kill()
        following.wait()
