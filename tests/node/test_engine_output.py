"""The node repeats the log lines of engines since its own start, whatever happens to the files."""

from pathlib import Path

from vinery_serving.node.reconciler import EngineOutput
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name, log_path
from vinery_serving.processes.logs.lines import LogEntry, time_text


def write(folder: Path, process: str, message: str) -> None:
    line = f"{time_text(0)} INFO {process} room: {message}\n"
    LogFile(log_path(folder, process), LogBounds()).write(line.encode())


def test_lines_of_engines_are_repeated_and_a_new_log_is_followed(tmp_path: Path) -> None:
    old, new = engine_name("old"), engine_name("org/new")
    write(tmp_path, old, "before")
    repeated: list[LogEntry] = []
    output = EngineOutput(tmp_path, repeated.append)

    write(tmp_path, old, "after")
    write(tmp_path, new, "first")
    write(tmp_path, "web-1", "its own")
    with log_path(tmp_path, old).open("ab") as file:
        file.write(b"Fatal Python error\n")
    output.read()
    output.read()

    assert {(entry.process, entry.message) for entry in repeated} == {
        (old, "after"),
        (old, "Fatal Python error"),
        (new, "first"),
    }
    assert len(repeated) == 3

    engine = engine_name("tiny")
    write(tmp_path, engine, "before")
    repeated: list[LogEntry] = []
    output = EngineOutput(tmp_path, repeated.append)
    log_path(tmp_path, engine).unlink()
    output.read()
    write(tmp_path, engine, "again")
    output.read()
    assert [entry.message for entry in repeated] == ["again"]
    EngineOutput(tmp_path / "none", repeated.append).read()  # a missing folder is no error
