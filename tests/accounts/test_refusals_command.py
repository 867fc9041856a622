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
