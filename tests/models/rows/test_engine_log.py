"""The last lines of an engine are on the pages of administrators, and on no others."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from tests.models.rows.conftest import LIST, TINY_CHAT
from vinery_serving.models import registry
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.engine_work import (
    engine_log,
    engine_log_path,
    engine_log_text,
    log_after,
)
from vinery_serving.models.models import ServedModel
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name, log_path
from vinery_serving.processes.logs.lines import time_text

pytestmark = pytest.mark.django_db
# A line of native code could hold anything.
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def failed() -> ServedModel:
    model = registry.add_model(TINY_CHAT, name="org/tiny")
    EngineStatus.objects.create(model=model, state=EngineState.FAILED, last_error="The reason.")
    return model


def write(folder: Path, *messages: str) -> None:
    file = LogFile(log_path(folder, engine_name("org/tiny")), LogBounds())
    for message in messages:
        file.write(f"{time_text(0)} ERROR engine-org/tiny room: {message}\n".encode())


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def test_the_last_lines_are_returned_or_where_the_log_is(folder_of_logs: Path) -> None:
    assert engine_log("org/tiny") is None
    assert "the log is on the host that runs the engine" in engine_log_text("org/tiny")

    write(folder_of_logs, *map(str, range(80)))
    lines = engine_log("org/tiny")
    assert lines is not None
    assert [line.split()[-1] for line in lines] == [str(number) for number in range(30, 80)]


def log_of(model: str) -> LogFile:
    path = log_path(Path(settings.VINERY_LOG_DIR), engine_name(model))
    return LogFile(path, LogBounds(max_bytes=1000, num_files=3))


def append(log: LogFile, *messages: str) -> None:
    for message in messages:
        log.write(f"{time_text(0)} INFO engine-a room: {message}\n".encode())


def words(lines: list[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in lines]


def test_a_log_is_followed_over_renamed_files() -> None:
    """Half lines and lost files: see `tests/processes/logs/test_log_file.py`."""
    path = engine_log_path("a")
    assert log_after(path, "") == ([], "")
    log = log_of("a")
    append(log, "one", "two")
    lines, position = log_after(path, "")
    assert words(lines) == ["one", "two"]
    assert log_after(path, position) == ([], position)
    numbers = [str(number) for number in range(25)]  # two files
    append(log, *numbers)
    found: list[str] = []
    while (answer := log_after(path, position))[0]:
        found += words(answer[0])
        position = answer[1]
    assert len(list(path.parent.iterdir())) > 1
    assert found == numbers


@pytest.mark.parametrize("position", ["1-", "-", "x-y", "9" * 99, "12345-99999999999999999"])
def test_a_position_that_no_file_has_begins_with_the_present_file(position: str) -> None:
    append(log_of("a"), "one")

    assert words(log_after(engine_log_path("a"), position)[0]) == ["one"]


def test_only_administrators_follow_a_log(root: Client, alice: Client, failed: ServedModel) -> None:
    address = f"{LIST}{failed.pk}/log/"
    append(log_of(failed.name), HOSTILE)
    for url in (address, f"{address}?after="):
        assert alice.get(url).status_code in (403, 404)
        assert root.get(url).status_code == 200

    text = page(root, address)
    position = re.search(r'data-position="(\d+-\d+)"', text)
    assert HOSTILE not in text
    assert position
    append(log_of(failed.name), "newer")
    answer = root.get(address, {"after": position[1]}).json()
    assert words(answer["lines"]) == ["newer"]
    assert answer["position"] != position[1]
