"""Limits, quotas and weights by command."""

import pytest

from tests.accounts.commands.conftest import Vinery, created_key
from vinery_accounts.models import Limit, ModelWeight, Project

SET = ("limit", "set", "--platform", "--metric", "tokens")


def test_a_limit_is_set_and_replaced(vinery_: Vinery, search: Project) -> None:
    key = created_key(vinery_)
    kind = ("--metric", "tokens", "--window", "day")
    scopes = {"platform": (), "organization": ("acme",), "project": ("search",)}
    scopes |= {"user": ("alice",), "key": (str(key.pk),), "model": ("tiny-chat",)}
    for scope, words in scopes.items():
        assert vinery_("limit", "set", f"--{scope}", *words, *kind, "--amount", "9").status == 0
    of_each = vinery_("limit", "set", "--end-users-of", "search", *kind, "--amount", "9")
    assert of_each.out.endswith(": 9 tokens per day, each end user of project acme / search.\n")
    zone = ("--time-zone", "Europe/Berlin", "--shadow")
    assert vinery_("limit", "set", "--user", "alice", *kind, "--amount", "7", *zone).status == 0

    rows = {row["scope"]: row for row in vinery_("limit", "list", "--json").rows}
    assert len(rows) == Limit.objects.count() == 7
    whose = {scope: row["whose"] for scope, row in rows.items()}
    same = {scope: "".join(words) for scope, words in scopes.items()}
    assert whose == same | {
        "project": "acme / search",
        "end_user": "acme / search",
        "key": str(key),
    }
    assert (rows["user"]["amount"], rows["user"]["shadow"]) == (7, True)
    assert vinery_("limit", "remove", str(rows["user"]["id"])).status == 0
    assert "There is no limit" in vinery_("limit", "remove", str(rows["user"]["id"])).err
    assert "Europe/Berlin" not in vinery_("limit", "list").out


def test_a_replaced_limit_keeps_fields(vinery_: Vinery, capsys: pytest.CaptureFixture[str]) -> None:
    first = ("--time-zone", "Europe/Berlin", "--shadow", "--alert-at", "90")
    for amount, words, kept in (
        (9, first, ("Europe/Berlin", True, [90])),
        (8, (), ("Europe/Berlin", True, [90])),
        (8, ("--no-shadow",), ("Europe/Berlin", False, [90])),
        (8, ("--alert-at", "platform"), ("Europe/Berlin", False, None)),
        (8, ("--time-zone", "UTC"), ("UTC", False, None)),
    ):
        assert vinery_(*SET, "--window", "day", "--amount", str(amount), *words).status == 0
        limit = Limit.objects.get()
        assert limit.amount == amount
        assert (limit.time_zone, limit.is_shadow, limit.alert_at) == kept

    words = (*SET, "--window", "day", "--amount", "9", "--alert-at")
    for given, stored in (("90,50", [50, 90]), ("off", [])):
        assert vinery_(*words, given).status == 0
        assert Limit.objects.get().alert_at == stored
    assert vinery_(*words, "500").status == 1
    with pytest.raises(SystemExit):
        vinery_(*words, "half")

    wrong = "'half' is neither percentages like 50,80,100 nor off nor platform"
    assert wrong in capsys.readouterr().err


def test_weights_are_set_listed_and_removed(vinery_: Vinery) -> None:
    vinery_("weight", "set", "tiny-chat", "--cached", "0.1")
    vinery_("weight", "set", "tiny-chat", "--output", "4")

    (row,) = vinery_("weight", "list", "--json").rows
    stored = {"model": "tiny-chat", "uncached": 1.0, "cached": 0.1, "output": 4.0, "image": 1.0}
    assert {name: row[name] for name in stored} == stored
    refused = vinery_("weight", "set", "m", "--image", "-1")
    assert "image: Ensure this value is greater" in refused.err
    assert vinery_("weight", "remove", "tiny-chat").status == 0
    assert not ModelWeight.objects.exists()
    assert vinery_("weight", "remove", "tiny-chat").status == 1
