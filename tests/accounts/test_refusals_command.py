"""`vinery refusals` shows why limits refused requests, as a table and as JSON."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from row_builders import stored_refusal
from usage_builders import store

from tests.tables import table
from vinery_accounts.models import RefusedRequest, User
from vinery_platform.cli import main

Run = Callable[..., str]

NOW = datetime.now(UTC)


@pytest.fixture
def run(db: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `vinery refusals` successfully, and return its output."""

    def call(*words: str) -> str:
        capsys.readouterr()
        assert main(["refusals", *words]) == 0
        return capsys.readouterr().out

    return call


def refused(request_id: str, **values: Any) -> RefusedRequest:
    usual = (
        {"created_at": NOW - timedelta(hours=1), "user_id": 7, "username": "alice"}
        | {"key_id": 12, "key_name": "laptop", "project_id": 3, "project_name": "search"}
        | {"organization_id": 2, "organization_name": "acme", "model": "tiny-chat"}
        | {"limit_id": 5, "scope": "key:12", "metric": "tokens", "window": "minute"}
        | {"amount": 1000, "level": 990.5, "needed": 31.0, "wait_s": 1.29}
    )
    return stored_refusal(request_id, **{**usual, **values})


def answered(request_id: str, http_status: int) -> None:
    """Store the usage record of the request."""
    store(request_id, http_status=http_status, started_at=NOW)


def ids(text: str) -> list[str]:
    return [row["request_id"] for row in json.loads(text)]


def test_a_refusal_is_listed_with_its_explanation(run: Run) -> None:
    alice = User.objects.create_user("alice")
    refused("r1", scope=f"user:{alice.pk}")
    answered("r1", 429)

    heads, row = run("list").splitlines()

    assert heads.split() == [
        *("AT", "USER", "KEY", "SCOPE", "WHOSE", "METRIC", "WINDOW", "AMOUNT", "LEVEL", "NEEDED"),
        *("WAIT", "S", "EFFECT"),
    ]
    for word in ("alice", "laptop", f"user:{alice.pk}", "the user alice", "tokens", "minute"):
        assert word in row
    assert row.split()[-5:] == ["1000", "990.5", "31.0", "1.29", "refused"]


def test_the_newest_refusals_are_listed_and_deleted_limits_by_number(run: Run) -> None:
    refused("r1")
    [row] = json.loads(run("list", "--json"))
    assert (row["whose"], row["limit_id"], row["wait_s"]) == ("the key 12", 5, 1.29)

    for number in range(3):
        refused(f"n{number}", created_at=NOW - timedelta(minutes=10 - number))
    assert ids(run("list", "--json", "--num", "2")) == ["n2", "n1"]


def test_the_effect_of_a_limit_follows_from_the_answer_of_the_request(run: Run) -> None:
    for request_id, http_status in (("limited", 429), ("ran", 200), ("free", 200)):
        refused(request_id, is_shadow=request_id == "free")
        answered(request_id, http_status)
    refused("long ago")
    effects = {"limited": "refused", "ran": "cut_short", "free": "shadow", "long ago": None}

    listed = json.loads(run("list", "--json"))
    exported = map(json.loads, run("export", "--format", "jsonl").splitlines())

    assert {row["request_id"]: row["effect"] for row in listed} == effects
    assert {row["request_id"]: row["effect"] for row in exported} == effects
    assert [row["effect"] for row in csv.DictReader(io.StringIO(run("export")))].count("") == 1


@table(
    "words, different",
    [
        (("--key", "12"), {"key_id": 13}),
        (("--key", "12", "--key", "14"), {"key_id": 13}),
        (("--user", "7"), {"user_id": 8}),
        (("--project", "3"), {"project_id": None}),
        (("--organization", "2"), {"organization_id": 1}),
        (("--limit", "5"), {"limit_id": 6}),
        (("--request", "ours"), {}),
        (("--model", "tiny-chat"), {"model": "large"}),
        (("--scope", "key:12"), {"scope": "platform"}),
        (("--metric", "tokens"), {"metric": "requests"}),
        (("--window", "minute"), {"window": "day"}),
        (("--no-shadow",), {"is_shadow": True}),
        (("--last", "2h"), {"created_at": NOW - timedelta(hours=3)}),
        (("--to", f"{NOW - timedelta(minutes=30):%Y-%m-%dT%H:%M}"), {"created_at": NOW}),
    ],
)
def test_each_filter_selects_its_refusals(
    run: Run, words: tuple[str, ...], different: dict[str, Any]
) -> None:
    RefusedRequest.objects.all().delete()
    refused("ours")
    refused("other", **different)

    assert ids(run("list", "--json", *words)) == ["ours"]


def test_refusals_are_exported_in_order_of_time(run: Run, tmp_path: Path) -> None:
    refused("later", key_name="=1+1")
    refused("earlier", created_at=NOW - timedelta(hours=2), wait_s=None)

    [first, second] = csv.DictReader(io.StringIO(run("export")))
    assert (first["request_id"], second["request_id"]) == ("earlier", "later")
    assert (first["wait_s"], second["key_name"], second["is_shadow"]) == ("", "'=1+1", "false")

    file = tmp_path / "refusals.jsonl"
    assert run("export", "--format", "jsonl", "-o", str(file), "--scope", "key:12") == ""
    [first, second] = map(json.loads, file.read_text().splitlines())
    assert (first["wait_s"], second["key_name"], second["needed"]) == (None, "=1+1", 31.0)
