"""Kept texts on a running platform: none unless a project asks."""

import json

import pytest

from tests.conftest import Running, until
from tests.system.clients import chat, new_key, vinery
from tests.system.ledger import execute, is_written, metric

# A word that is nowhere else.
SECRET = "Zanzibarium"
STORED = "SELECT request_id FROM accounts_capture WHERE request_id = ?"


@pytest.fixture(scope="module")
def capturing(running: Running) -> str:
    """A key of a project that keeps texts."""
    vinery(running, "project", "create", "kept")
    vinery(running, "project", "change", "kept", "--capture-hours", "2")
    return new_key(running, "kept", "--project", "kept")


def test_texts_are_kept_encrypted_where_a_project_asks_and_leave_no_trace_elsewhere(
    running: Running, capturing: str
) -> None:
    text = f"Say {SECRET}!"
    for stream in (False, True):
        assert chat(running, text, max_tokens=12, stream=stream).status_code == 200
    answer = chat(running, text, key=capturing, max_tokens=12)
    # A later request is kept, so the first ones would have been kept by now, too.
    request_id = answer.headers["x-request-id"]
    until(lambda: execute(running, STORED, request_id))
    until(lambda: is_written(running))
    until(lambda: metric(running, "vinery_captures_waiting") == 0)

    shown = json.loads(vinery(running, "capture", "show", request_id, "--json"))
    assert json.loads(shown["body"])["messages"] == [{"role": "user", "content": text}]
    assert shown["answer"] == answer.text
    kept_of = {row[0] for row in execute(running, "SELECT project_id FROM accounts_capture")}
    default = execute(running, "SELECT id FROM accounts_project WHERE name = ?", "default")[0][0]
    assert default not in kept_of
    assert not files_with(running, SECRET)


def files_with(running: Running, word: str) -> list[str]:
    """Files of the installation, with log and database, that hold a word."""
    files = [*running.home.rglob("*"), running.log]
    return [str(each) for each in files if each.is_file() and word.encode() in each.read_bytes()]
