"""Kept texts on a running platform: none unless a project asks, and replays of those there are."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Running, until
from tests.system.commands import vinery
from tests.system.ledger import execute, is_written, metric, rows

pytestmark = pytest.mark.system

# A word that is nowhere else.
SECRET = "Zanzibarium"
STORED = "SELECT request_id FROM accounts_capture WHERE request_id = ?"


@pytest.fixture(scope="module")
def platform(running: Running) -> Running:
    return running


@pytest.fixture(scope="module")
def capturing(platform: Running) -> str:
    """A key of a project that keeps texts."""
    vinery(platform, "project", "create", "kept")
    vinery(platform, "project", "change", "kept", "--capture-hours", "2")
    return key_in(platform, "kept")


def key_in(platform: Running, project: str) -> str:
    made = vinery(platform, "key", "create", "--name", project, "--project", project)
    return next(word for word in made.split() if word.startswith("vny_"))


def ask(
    platform: Running, key: str, *, stream: bool = False, text: str = "Hello!"
) -> httpx.Response:
    answer = httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"authorization": f"Bearer {key}"},
        json={
            "model": "tiny-chat",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 12,
            "stream": stream,
        },
        timeout=60,
    )
    assert answer.status_code == 200
    return answer


def wait_until_kept(platform: Running, answer: httpx.Response) -> str:
    request_id = answer.headers["x-request-id"]
    until(lambda: execute(platform, STORED, request_id))
    return str(request_id)


def wait_until_settled(platform: Running) -> None:
    """Until whatever was to be kept of earlier requests is stored: the queues are empty."""
    until(lambda: metric(platform, "vinery_requests_live") == 0)
    until(lambda: metric(platform, "vinery_captures_waiting") == 0)


def replay(platform: Running, request_id: str, key: str, *edits: str) -> dict[str, Any]:
    sets = [word for edit in edits for word in ("--set", edit)]
    words = ("replay", request_id, "--key", key, "--url", platform.base_url, "--json", *sets)
    result: dict[str, Any] = json.loads(vinery(platform, *words))
    return result


def test_who_does_not_ask_for_it_leaves_no_trace(platform: Running, capturing: str) -> None:
    for stream in (False, True):
        answer = ask(platform, platform.api_key, stream=stream, text=f"Say {SECRET}!")
        until(
            lambda id_=answer.headers["x-request-id"]: any(
                r.request_id == id_ for r in rows(platform)
            )
        )
    # What is asked after it is kept, so that it would have been, too.
    kept = wait_until_kept(platform, ask(platform, capturing))
    wait_until_settled(platform)

    assert SECRET not in json.dumps(json.loads(vinery(platform, "capture", "list", "--json")))
    kept_of = {row[0] for row in execute(platform, "SELECT project_id FROM accounts_capture")}
    default = execute(platform, "SELECT id FROM accounts_project WHERE name = ?", "default")[0][0]
    assert kept
    assert default not in kept_of
    assert not files_with(platform, SECRET)


def files_with(platform: Running, word: str) -> list[str]:
    """Files of the installation, its log and database among them, that hold a word."""
    files = [*platform.home.rglob("*"), platform.log]
    return [str(each) for each in files if each.is_file() and word.encode() in each.read_bytes()]


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
def test_a_chat_is_kept_shown_and_replayed_with_equal_answers(
    platform: Running, capturing: str, *, stream: bool
) -> None:
    text = f"Count to 5, {SECRET}!"
    answer = ask(platform, capturing, stream=stream, text=text)
    request_id = wait_until_kept(platform, answer)

    shown = json.loads(vinery(platform, "capture", "show", request_id, "--json"))
    assert json.loads(shown["body"])["messages"] == [{"role": "user", "content": text}]
    assert shown["answer"] == answer.text
    assert not files_with(platform, SECRET), "it is nowhere in the clear"

    first, second = (
        replay(platform, request_id, platform.api_key, "temperature=0") for _ in range(2)
    )
    assert first["now"]["texts"] == second["now"]["texts"] != {}
    assert first["now"]["figures"]["num_output_tokens"] > 0
    assert (
        first["kept"]["figures"]["num_prompt_tokens"]
        == first["now"]["figures"]["num_prompt_tokens"]
    )
    until(lambda: is_written(platform))
    payers = {row.request_id: row.key_name for row in rows(platform)}
    assert payers[request_id] == "kept"
    assert payers[first["replay_request_id"]] != "kept"
    edited = replay(platform, request_id, capturing, "temperature=0", "messages.0.content=Hello!")
    assert (
        edited["now"]["figures"]["num_prompt_tokens"]
        != first["now"]["figures"]["num_prompt_tokens"]
    )
    execute_read = "SELECT COUNT(*) FROM accounts_auditentry WHERE action = ? AND target = ?"
    assert execute(platform, execute_read, "capture.read", request_id)[0][0] == 4


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("chat/completions", {}),
        ("chat/completions", {"anthropic-version": "2023-06-01"}),
        ("messages", {}),
    ],
    ids=["of OpenAI", "of Anthropic, at a chat", "of Anthropic"],
)
def test_an_error_is_kept_in_the_form_that_its_client_got(
    platform: Running, capturing: str, path: str, headers: dict[str, str]
) -> None:
    refused = httpx.post(
        f"{platform.base_url}/v1/{path}",
        headers={"authorization": f"Bearer {capturing}", **headers},
        json={"model": "tiny-chat", "messages": [], "max_tokens": 1},
        timeout=60,
    )
    request_id = wait_until_kept(platform, refused)

    assert refused.status_code == 400
    shown = json.loads(vinery(platform, "capture", "show", request_id, "--json"))
    assert shown["answer"] == refused.text


def test_a_refused_replay_names_the_reason(platform: Running, capturing: str) -> None:
    request_id = wait_until_kept(platform, ask(platform, capturing))
    for words, result in (
        (("req_none",), "There is no capture of req_none"),
        ((request_id, "--set", "model=gone"), "404, model_not_found"),
        ((request_id, "--set", "messages.9.content=x"), "does not exist"),
    ):
        with pytest.raises(AssertionError, match=result):
            vinery(platform, "replay", *words, "--key", capturing, "--url", platform.base_url)


def test_what_rules_find_is_not_kept_of_a_stream(platform: Running) -> None:
    vinery(platform, "project", "create", "careful")
    change = ("project", "change", "careful", "--capture-hours", "1")
    vinery(platform, *change, "--redact", "1 2 3", "--redact", "email")
    key = key_in(platform, "careful")
    answer = ask(platform, key, stream=True, text="Count to 5.")
    refused = httpx.post(
        f"{platform.base_url}/v1/completions",
        headers={"authorization": f"Bearer {key}"},
        json={"model": "anna@mail.example", "prompt": "1 2 3"},
    )
    shown = [
        json.loads(vinery(platform, "capture", "show", wait_until_kept(platform, each), "--json"))
        for each in (answer, refused)
    ]
    text = "".join(
        json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        for line in shown[0]["answer"].splitlines()
        if line.startswith("data: {")
    )
    assert "1 2 3" in "".join(
        json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        for line in answer.text.splitlines()
        if line.startswith("data: {")
    ), "the answer has it"
    assert "█" in text
    assert "1 2 3" not in text
    assert "anna@" not in json.dumps(shown)
    assert shown[1]["redacted"]


def test_turning_it_off_leaves_nothing(platform: Running) -> None:
    vinery(platform, "project", "create", "fickle")
    vinery(platform, "project", "change", "fickle", "--capture-hours", "2")
    key = key_in(platform, "fickle")
    wait_until_kept(platform, ask(platform, key))
    late = [ask(platform, key) for _ in range(5)]

    vinery(platform, "project", "change", "fickle", "--capture-hours", "0")
    ask(platform, key)
    wait_until_settled(platform)

    of = "SELECT id FROM accounts_project WHERE name = ?"
    project = execute(platform, of, "fickle")[0][0]
    assert late
    assert not execute(platform, "SELECT 1 FROM accounts_capture WHERE project_id = ?", project)


def test_while_the_database_is_unavailable_requests_are_served_and_captured_later(
    platform: Running, capturing: str
) -> None:
    wait_until_settled(platform)
    with database_locked(platform):
        answers = [ask(platform, capturing) for _ in range(3)]
        until(lambda: metric(platform, "vinery_captures_waiting") > 0)
        time.sleep(1.5)  # for attempts to store them
        answers.append(ask(platform, capturing))
    for answer in answers:
        wait_until_kept(platform, answer)
    assert metric(platform, "vinery_captures_dropped_total") == 0


@contextmanager
def database_locked(platform: Running) -> Iterator[None]:
    """Holds what captures are stored in."""
    if server := platform.environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            connection.execute("LOCK TABLE accounts_capture IN ACCESS EXCLUSIVE MODE")
            yield
        return
    file = platform.home / "vinery.sqlite3"
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")
