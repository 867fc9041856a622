"""Limits, quotas and weights by command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from usage_builders import admission, settlement

from tests.accounts.commands.conftest import Vinery
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import (
    Limit,
    ModelWeight,
    Project,
)
from vinery_accounts.usage.store import store_settlements


def test_a_limit_is_set_and_replaced(vinery_: Vinery, search: Project) -> None:
    key = find_key(vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip())
    kind = ("--metric", "tokens", "--window", "day")
    for scope in (
        ("--platform",),
        ("--organization", "acme"),
        ("--project", "search"),
        ("--user", "alice"),
        ("--key", str(key.pk)),
        ("--model", "tiny-chat"),
    ):
        assert vinery_("limit", "set", *scope, *kind, "--amount", "9").status == 0, scope
    zone = ("--time-zone", "Europe/Berlin", "--shadow")
    assert vinery_("limit", "set", "--user", "alice", *kind, "--amount", "7", *zone).status == 0

    rows = {row["scope"]: row for row in vinery_("limit", "list", "--json").rows}
    assert len(rows) == Limit.objects.count() == 6
    assert {scope: row["whose"] for scope, row in rows.items()} == {
        "platform": "",
        "organization": "acme",
        "project": "acme / search",
        "user": "alice",
        "key": str(key),
        "model": "tiny-chat",
    }
    assert (rows["user"]["amount"], rows["user"]["shadow"]) == (7, True)
    assert vinery_("limit", "remove", str(rows["user"]["id"])).status == 0
    assert "There is no limit" in vinery_("limit", "remove", str(rows["user"]["id"])).err
    assert "Europe/Berlin" not in vinery_("limit", "list").out


def test_a_replaced_limit_keeps_the_fields_that_are_not_named(vinery_: Vinery) -> None:
    kind = ("limit", "set", "--platform", "--metric", "tokens", "--window", "day")
    zone = ("--time-zone", "Europe/Berlin", "--shadow", "--alert-at", "90")

    def kept(*words: str) -> tuple[Any, ...]:
        assert vinery_(*kind, *words).status == 0
        limit = Limit.objects.get()
        return limit.amount, limit.time_zone, limit.is_shadow, limit.alert_at

    assert kept("--amount", "9", *zone) == (9, "Europe/Berlin", True, [90])
    assert kept("--amount", "8") == (8, "Europe/Berlin", True, [90])
    assert kept("--amount", "8", "--no-shadow") == (8, "Europe/Berlin", False, [90])
    assert kept("--amount", "8", "--alert-at", "platform") == (8, "Europe/Berlin", False, None)
    assert kept("--amount", "8", "--time-zone", "UTC") == (8, "UTC", False, None)


def test_a_week_begins_on_the_named_day(vinery_: Vinery) -> None:
    kind = ("limit", "set", "--platform", "--metric", "tokens", "--window", "week")

    def begins(*words: str) -> str:
        assert vinery_(*kind, "--amount", "9", *words).status == 0
        (row,) = vinery_("limit", "list", "--json").rows
        assert row["window"] == "week"
        return str(row["week_start"])

    assert begins() == "monday"
    assert begins("--week-start", "sunday") == "sunday"
    assert begins() == "sunday"
    assert "sunday" in vinery_("limit", "list").out

    (row,) = vinery_("limit", "quotas", "--json").rows
    since = datetime.fromisoformat(row["since"])
    assert (since.strftime("%A"), since.hour) == ("Sunday", 0)
    assert datetime.fromisoformat(row["resets"]) - since == timedelta(days=7)


def test_quotas_are_listed_with_the_remaining_amount(vinery_: Vinery, search: Project) -> None:
    words = ("limit", "set", "--project", "search", "--amount", "1000", "--metric")
    result = vinery_(*words, "tokens", "--window", "day").out
    assert result.endswith(": 1000 tokens per day, project acme / search.\n")
    vinery_(*words, "tokens", "--window", "minute")
    usage = settlement(admission=admission(started_at=datetime.now(UTC), project_id=search.pk))
    store_settlements([usage])

    (row,) = vinery_("limit", "quotas", "--json").rows
    assert (row["whose"], row["used"], row["left"]) == ("acme / search", 41, 959)
    assert "959" in vinery_("limit", "quotas").out


@pytest.mark.parametrize(
    ("metric", "words"),
    [("concurrency", "4 concurrent answers"), ("weighted_tokens", "4 weighted tokens in total")],
)
def test_a_limit_without_a_window_is_named_in_words(
    vinery_: Vinery, search: Project, metric: str, words: str
) -> None:
    result = vinery_("limit", "set", "--user", "alice", "--metric", metric, "--amount", "4")
    assert result.out.endswith(f": {words}, user alice.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--metric", "tokens", "--amount", "9"),
            "A limit of tokens needs one of these windows: minute",
        ),
        (("--metric", "concurrency", "--window", "day", "--amount", "9"), "has no window"),
        (
            ("--metric", "tokens", "--window", "day", "--amount", "1", "--week-start", "sunday"),
            "Only limits per week have a first day",
        ),
        (("--metric", "tokens", "--window", "day", "--amount", "0"), "amount: Ensure this value"),
        (
            ("--metric", "tokens", "--window", "day", "--amount", "1", "--time-zone", "Mars"),
            "There is no time zone Mars",
        ),
    ],
)
def test_an_invalid_limit_is_refused_in_one_line(
    vinery_: Vinery, words: tuple[str, ...], message: str
) -> None:
    result = vinery_("limit", "set", "--platform", *words)
    assert (result.status, result.out) == (1, "")
    assert message in result.err
    assert not Limit.objects.exists()


def test_weights_are_set_listed_and_removed(vinery_: Vinery) -> None:
    vinery_("weight", "set", "tiny-chat", "--cached", "0.1")
    vinery_("weight", "set", "tiny-chat", "--output", "4")

    (row,) = vinery_("weight", "list", "--json").rows
    assert {name: row[name] for name in ("model", "uncached", "cached", "output", "image")} == {
        "model": "tiny-chat",
        "uncached": 1.0,
        "cached": 0.1,
        "output": 4.0,
        "image": 1.0,
    }
    assert (
        "image: Ensure this value is greater" in vinery_("weight", "set", "m", "--image", "-1").err
    )
    for weight in ("1001", "1e308", "inf", "nan"):
        assert (
            "Give a weight from 0 to 1000" in vinery_("weight", "set", "m", "--image", weight).err
        )
    assert vinery_("weight", "remove", "tiny-chat").status == 0
    assert not ModelWeight.objects.exists()
    assert vinery_("weight", "remove", "tiny-chat").status == 1
