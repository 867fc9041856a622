"""Kept texts on a running platform: none unless a project asks."""

import json
from typing import Any

import httpx
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


def ask(running: Running, key: str, text: str = "Hello!", **fields: Any) -> httpx.Response:
    answer = chat(running, text, key=key, max_tokens=12, **fields)
    assert answer.status_code == 200
    return answer


def wait_until_kept(running: Running, answer: httpx.Response) -> str:
    request_id = answer.headers["x-request-id"]
    until(lambda: execute(running, STORED, request_id))
    return str(request_id)


def wait_until_settled(running: Running) -> None:
    """Until whatever was to be kept of earlier requests is stored, and their usage, too."""
    until(lambda: is_written(running))
    until(lambda: metric(running, "vinery_captures_waiting") == 0)


def test_who_does_not_ask_for_it_leaves_no_trace(running: Running, capturing: str) -> None:
    for stream in (False, True):
        ask(running, running.api_key, f"Say {SECRET}!", stream=stream)
    # A later request is kept, so this one would have been kept by now, too.
    kept = wait_until_kept(running, ask(running, capturing))
    wait_until_settled(running)

    assert SECRET not in vinery(running, "capture", "list", "--json")
    kept_of = {row[0] for row in execute(running, "SELECT project_id FROM accounts_capture")}
    default = execute(running, "SELECT id FROM accounts_project WHERE name = ?", "default")[0][0]
    assert kept
    assert default not in kept_of
    assert not files_with(running, SECRET)


def files_with(running: Running, word: str) -> list[str]:
    """Files of the installation, with log and database, that hold a word."""
    files = [*running.home.rglob("*"), running.log]
    return [str(each) for each in files if each.is_file() and word.encode() in each.read_bytes()]


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
def test_a_chat_is_kept_and_each_reading_is_audited(
    running: Running, capturing: str, *, stream: bool
) -> None:
    text = f"Count to 5, {SECRET}!"
    answer = ask(running, capturing, text, stream=stream)
    request_id = wait_until_kept(running, answer)

    shown = json.loads(vinery(running, "capture", "show", request_id, "--json"))
    assert json.loads(shown["body"])["messages"] == [{"role": "user", "content": text}]
    assert shown["answer"] == answer.text
    assert not files_with(running, SECRET), "it is nowhere in the clear"

    execute_read = "SELECT COUNT(*) FROM accounts_auditentry WHERE action = ? AND target = ?"
    assert execute(running, execute_read, "capture.read", request_id)[0][0] == 1
