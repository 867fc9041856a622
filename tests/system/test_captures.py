"""Kept texts on a running platform: none unless a project asks, and replays of those there are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Running, until
from tests.system.clients import bearer, new_key, post
from tests.system.commands import vinery
from tests.system.ledger import execute, is_written, metric, rows
from tests.tables import table

pytestmark = pytest.mark.system

# A word that is nowhere else.
SECRET = "Zanzibarium"
STORED = "SELECT request_id FROM accounts_capture WHERE request_id = ?"


@pytest.fixture(scope="module")
def capturing(running: Running) -> str:
    """A key of a project that keeps texts."""
    vinery(running, "project", "create", "kept")
    vinery(running, "project", "change", "kept", "--capture-hours", "2")
    return key_in(running, "kept")


def key_in(running: Running, project: str) -> str:
    return new_key(running, project, "--project", project)


def ask(
    running: Running, key: str, *, stream: bool = False, text: str = "Hello!"
) -> httpx.Response:
    body = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 12,
        "stream": stream,
    }
    answer = post(running, "/v1/chat/completions", body, key)
    assert answer.status_code == 200
    return answer


def wait_until_kept(running: Running, answer: httpx.Response) -> str:
    request_id = answer.headers["x-request-id"]
    until(lambda: execute(running, STORED, request_id))
    return str(request_id)


def wait_until_settled(running: Running) -> None:
    """Until whatever was to be kept of earlier requests is stored: the queues are empty."""
    until(lambda: metric(running, "vinery_requests_live") == 0)
    until(lambda: metric(running, "vinery_captures_waiting") == 0)


def replay(running: Running, request_id: str, key: str, *edits: str) -> dict[str, Any]:
    sets = [word for edit in edits for word in ("--set", edit)]
    words = ("replay", request_id, "--key", key, "--url", running.base_url, "--json", *sets)
    result: dict[str, Any] = json.loads(vinery(running, *words))
    return result


def test_who_does_not_ask_for_it_leaves_no_trace(running: Running, capturing: str) -> None:
    for stream in (False, True):
        ask(running, running.api_key, stream=stream, text=f"Say {SECRET}!")
    # What is asked after it is kept, so that it would have been, too.
    kept = wait_until_kept(running, ask(running, capturing))
    wait_until_settled(running)

    assert SECRET not in vinery(running, "capture", "list", "--json")
    kept_of = {row[0] for row in execute(running, "SELECT project_id FROM accounts_capture")}
    default = execute(running, "SELECT id FROM accounts_project WHERE name = ?", "default")[0][0]
    assert kept
    assert default not in kept_of
    assert not files_with(running, SECRET)


def files_with(running: Running, word: str) -> list[str]:
    """Files of the installation, its log and database among them, that hold a word."""
    files = [*running.home.rglob("*"), running.log]
    return [str(each) for each in files if each.is_file() and word.encode() in each.read_bytes()]


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
def test_a_chat_is_kept_shown_and_replayed_with_equal_answers(
    running: Running, capturing: str, *, stream: bool
) -> None:
    text = f"Count to 5, {SECRET}!"
    answer = ask(running, capturing, stream=stream, text=text)
    request_id = wait_until_kept(running, answer)

    shown = json.loads(vinery(running, "capture", "show", request_id, "--json"))
    assert json.loads(shown["body"])["messages"] == [{"role": "user", "content": text}]
    assert shown["answer"] == answer.text
    assert not files_with(running, SECRET), "it is nowhere in the clear"

    first, second = (
        replay(running, request_id, running.api_key, "temperature=0") for _ in range(2)
    )
    assert first["now"]["texts"] == second["now"]["texts"] != {}
    assert first["now"]["figures"]["num_output_tokens"] > 0
    num_prompt_tokens = first["now"]["figures"]["num_prompt_tokens"]
    assert first["kept"]["figures"]["num_prompt_tokens"] == num_prompt_tokens
    until(lambda: is_written(running))
    payers = {row.request_id: row.key_name for row in rows(running)}
    assert payers[request_id] == "kept"
    assert payers[first["replay_request_id"]] != "kept"
    edited = replay(running, request_id, capturing, "temperature=0", "messages.0.content=Hello!")
    assert edited["now"]["figures"]["num_prompt_tokens"] != num_prompt_tokens
    execute_read = "SELECT COUNT(*) FROM accounts_auditentry WHERE action = ? AND target = ?"
    assert execute(running, execute_read, "capture.read", request_id)[0][0] == 4


@table(
    "path, headers",
    [
        ("chat/completions", {}),
        ("chat/completions", {"anthropic-version": "2023-06-01"}),
        ("messages", {}),
    ],
)
def test_an_error_is_kept_in_the_form_that_its_client_got(
    running: Running, capturing: str, path: str, headers: dict[str, str]
) -> None:
    refused = httpx.post(
        f"{running.base_url}/v1/{path}",
        headers={**bearer(running, capturing), **headers},
        json={"model": "tiny-chat", "messages": [], "max_tokens": 1},
        timeout=60,
    )
    request_id = wait_until_kept(running, refused)

    assert refused.status_code == 400
    shown = json.loads(vinery(running, "capture", "show", request_id, "--json"))
    assert shown["answer"] == refused.text


def test_a_refused_replay_names_the_reason(running: Running, capturing: str) -> None:
    request_id = wait_until_kept(running, ask(running, capturing))
    for words, result in (
        (("req_none",), "There is no capture of req_none"),
        ((request_id, "--set", "model=gone"), "404, model_not_found"),
        ((request_id, "--set", "messages.9.content=x"), "does not exist"),
    ):
        with pytest.raises(AssertionError, match=result):
            vinery(running, "replay", *words, "--key", capturing, "--url", running.base_url)


def test_what_rules_find_is_not_kept_of_a_stream(running: Running) -> None:
    vinery(running, "project", "create", "careful")
    change = ("project", "change", "careful", "--capture-hours", "1")
    vinery(running, *change, "--redact", "1 2 3", "--redact", "email")
    key = key_in(running, "careful")
    answer = ask(running, key, stream=True, text="Count to 5.")
    asked = {"model": "anna@mail.example", "prompt": "1 2 3"}
    refused = post(running, "/v1/completions", asked, key)
    shown = [
        json.loads(vinery(running, "capture", "show", wait_until_kept(running, each), "--json"))
        for each in (answer, refused)
    ]
    text = text_of(shown[0]["answer"])
    assert "1 2 3" in text_of(answer.text), "the answer has it"
    assert "█" in text
    assert "1 2 3" not in text
    assert "anna@" not in json.dumps(shown)
    assert shown[1]["redacted"]


def text_of(stream: str) -> str:
    lines = [line for line in stream.splitlines() if line.startswith("data: {")]
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_turning_it_off_leaves_nothing(running: Running) -> None:
    vinery(running, "project", "create", "fickle")
    vinery(running, "project", "change", "fickle", "--capture-hours", "2")
    key = key_in(running, "fickle")
    wait_until_kept(running, ask(running, key))
    for _ in range(5):
        ask(running, key)

    vinery(running, "project", "change", "fickle", "--capture-hours", "0")
    ask(running, key)
    wait_until_settled(running)

    of = "SELECT id FROM accounts_project WHERE name = ?"
    project = execute(running, of, "fickle")[0][0]
    assert not execute(running, "SELECT 1 FROM accounts_capture WHERE project_id = ?", project)


@pytest.mark.stores
def test_while_the_database_is_unavailable_requests_are_served_and_captured_later(
    running: Running, capturing: str
) -> None:
    wait_until_settled(running)
    with database_locked(running):
        answers = [ask(running, capturing) for _ in range(3)]
        until(lambda: metric(running, "vinery_captures_waiting") > 0)
        answers.append(ask(running, capturing))
    for answer in answers:
        wait_until_kept(running, answer)
    assert metric(running, "vinery_captures_dropped_total") == 0


@contextmanager
def database_locked(running: Running) -> Iterator[None]:
    """Holds what captures are stored in."""
    if server := running.environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            connection.execute("LOCK TABLE accounts_capture IN ACCESS EXCLUSIVE MODE")
            yield
        return
    file = running.home / "vinery.sqlite3"
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")
