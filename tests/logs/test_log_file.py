"""A log file stays within its bounds, whatever happens to it and to the disk."""

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.tables import table
from vinery_serving.logs.file import LogBounds, LogFile
from vinery_serving.logs.folder import (
    delete_former_engines,
    engine_name,
    log_path,
    log_paths,
    process_of,
)

BOUNDS = LogBounds(max_bytes=100, num_files=3)

# Writes many numbered lines to a log that is small.
_WRITER = """
import sys
from pathlib import Path
from vinery_serving.logs.file import LogBounds, LogFile

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
def test_a_full_file_is_renamed_and_the_oldest_is_deleted(
    path: Path, num_files: int, left: list[str]
) -> None:
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


def test_a_removed_file_is_written_anew(path: Path) -> None:
    file = LogFile(path, BOUNDS)
    file.write(b"lost\n")
    path.unlink()

    assert file.write(b"new\n")

    assert contents(path) == ["new\n"]


def test_a_missing_folder_costs_lines_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "web-1.log"
    file = LogFile(path, BOUNDS)

    assert not file.write(b"lost\n")
    path.parent.mkdir()
    assert file.write(b"kept\n")

    assert path.read_text() == "kept\n"


def test_a_writer_follows_the_rotation_of_another(path: Path) -> None:
    first, second = LogFile(path, BOUNDS), LogFile(path, BOUNDS)
    first.write(b"a" * 90 + b"\n")
    second.write(b"b" * 90 + b"\n")

    first.write(b"c\n")

    assert [text[0] for text in contents(path)] == ["b", "a"]
    assert path.read_text().endswith("c\n")


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
