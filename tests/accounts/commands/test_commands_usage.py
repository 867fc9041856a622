"""Usage and refusals by command."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone
from row_builders import stored_refusal
from usage_builders import admission, settlement

from tests.accounts.commands.conftest import Vinery
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import (
    Project,
    User,
)
from vinery_accounts.usage.store import store_settlements


def test_usage_and_refusals_are_filtered_by_names_and_by_ids_of_deleted_rows(
    vinery_: Vinery, search: Project
) -> None:
    alice = User.objects.get(username="alice")
    key = find_key(vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip())
    acme = search.organization
    owners = {
        "user_id": alice.pk,
        "key_id": key.pk,
        "project_id": search.pk,
        "organization_id": acme.pk,
    }
    now = timezone.now()
    store_settlements(
        [
            settlement("hers", admission=admission("hers", **owners, started_at=now)),
            settlement("gone", admission=admission("gone", user_id=4711, started_at=now)),
        ]
    )
    for request_id, more in (("hers", owners), ("gone", {"user_id": 4711})):
        stored_refusal(request_id, limit_id=1, **more)

    for words in (
        ("--user", "alice"),
        ("--key", key.hint),
        ("--project", "acme/search"),
        ("--organization", "acme"),
    ):
        (exported,) = vinery_("usage", "export", "--format", "jsonl", *words).out.splitlines()
        assert json.loads(exported)["request_id"] == "hers"
        assert [
            row["request_id"] for row in vinery_("refusals", "list", "--json", *words).rows
        ] == ["hers"]
    (exported,) = vinery_("usage", "export", "--format", "jsonl", "--user", "4711").out.splitlines()
    assert json.loads(exported)["request_id"] == "gone"
    for command in (("usage", "show"), ("usage", "export"), ("refusals", "list")):
        result = vinery_(*command, "--user", "zoe")
        assert (result.status, result.err) == (
            1,
            "vinery: There is no user zoe. See: vinery user list\n",
        )


def test_an_unknown_outcome_is_refused_in_one_line(vinery_: Vinery) -> None:
    result = vinery_("usage", "show", "--outcome", "fine")

    assert result.status == 1
    assert "There is no outcome fine. There are: ok, " in result.err


def test_invalid_percentages_are_refused_with_the_forms_that_the_command_accepts(
    vinery_: Vinery, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        vinery_(
            *("limit", "set", "--platform", "--metric", "tokens", "--window", "day"),
            *("--amount", "9", "--alert-at", "half"),
        )

    assert "'half' is neither percentages like 50,80,100 nor off nor platform" in (
        capsys.readouterr().err
    )


def test_media_have_columns_where_there_are_some(vinery_: Vinery) -> None:
    now = timezone.now()
    store_settlements([settlement("a", admission=admission("a", started_at=now))])
    heads = vinery_("usage", "show").out.splitlines()[0]
    assert "IMAGE" not in heads and "MEDIA" not in heads

    pictures = settlement(
        "b", admission=admission("b", started_at=now), num_image_tokens=1234, num_media=56
    )
    store_settlements([pictures])

    for words in ((), ("--by", "model")):
        heads, *_, row = vinery_("usage", "show", *words).out.splitlines()
        assert "IMAGE" in heads and "MEDIA" in heads
        assert "PIXELS" not in heads
        assert "1,234" in row and "56" in row
