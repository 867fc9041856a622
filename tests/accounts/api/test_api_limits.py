"""Limits and model weights in the management API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from api_client import Api, Tenant

from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import Limit

Keys = Callable[..., NewKey]


def test_the_api_refuses_a_model_weight_above_the_maximum(root: Api) -> None:
    row = root.post("model-weights/", {"model": "tiny-chat", "output": 1000})

    for wrong in (1000.5, 1e308):
        error = root.error("PATCH", f"model-weights/{row['id']}/", {"output": wrong})
        assert error == (400, "invalid_value", "output")


def test_the_api_refuses_a_limit_of_an_unknown_or_invisible_object(
    owner: Api, root: Api, theirs: Tenant, make_key: Keys
) -> None:
    kind = {"metric": "requests", "window": "day", "amount": 5}
    for scope, invisible_id in (
        ("key", make_key(theirs.one).key.pk),
        ("project", theirs.one.pk),
        ("organization", theirs.organization.pk),
    ):
        for scope_id in (invisible_id, 10**9):
            body = {"scope": scope, "scope_id": scope_id, **kind}
            assert owner.error("POST", "limits/", body) == (400, "invalid_value", "scope_id")
        assert root.error("POST", "limits/", body) == (400, "invalid_value", "scope_id")


def test_admins_limit_keys_and_projects_and_superusers_limit_the_rest(
    root: Api, owner: Api, admin: Api, ours: Tenant, make_key: Keys
) -> None:
    key = make_key(ours.one).key
    common = {"metric": "tokens", "window": "day", "amount": 1000}
    by_key = {**common, "scope": "key", "scope_id": key.pk}
    by_project = {**common, "scope": "project", "scope_id": ours.one.pk}
    by_organization = {**common, "scope": "organization", "scope_id": ours.organization.pk}

    created = admin.post("limits/", by_key)
    assert admin.patch(f"limits/{created['id']}/", {"amount": 5, "is_shadow": True})["amount"] == 5
    admin.delete(f"limits/{created['id']}/")
    admin.post("limits/", by_project)
    for body in (by_organization, {**common, "scope": "platform"}):
        assert owner.error("POST", "limits/", body)[0] == 403
        limit_id = root.post("limits/", body)["id"]
        assert owner.error("PATCH", f"limits/{limit_id}/", {"amount": 2})[0] == 403
        assert owner.error("DELETE", f"limits/{limit_id}/")[0] == 403
        assert owner.get(f"limits/{limit_id}/")["amount"] == 1000
    weights = {"model": "tiny-chat", "cached": 0.1}
    assert owner.error("POST", "model-weights/", weights)[0] == 403
    assert root.post("model-weights/", weights)["output"] == 1


def test_a_patch_of_a_limit_keeps_the_other_fields(root: Api) -> None:
    body = {"scope": "model", "model": "tiny-chat", "metric": "tokens", "window": "day"}
    more = {"amount": 9, "time_zone": "Europe/Berlin", "is_shadow": True, "alert_at": [90]}
    path = f"limits/{root.post('limits/', body | more)['id']}/"

    changed = root.patch(path, {"amount": 8})

    assert {name: changed[name] for name in body | more} == body | more | {"amount": 8}
    assert root.patch(path, {"alert_at": None})["is_shadow"] is True


def test_a_weekly_limit_shows_and_changes_its_first_day(root: Api) -> None:
    body = {"scope": "platform", "metric": "tokens", "window": "week", "amount": 9}
    created = root.post("limits/", body)
    path = f"limits/{created['id']}/"

    assert created["week_start"] == "monday"
    assert root.patch(path, {"week_start": "sunday"})["week_start"] == "sunday"
    [quota] = root.get("quotas/")["data"]
    since, until = (datetime.fromisoformat(quota[name]) for name in ("window_start", "resets_at"))
    assert (quota["week_start"], since.strftime("%A")) == ("sunday", "Sunday")
    assert until - since == timedelta(days=7)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": 2**63}, "amount"),
        ({"metric": "cookies"}, "metric"),
        ({"metric": "concurrency"}, "window"),
        ({"window": "none"}, "window"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"week_start": "sunday"}, "week_start"),
        ({"window": "month", "week_start": "sunday"}, "week_start"),
        ({"window": "week", "week_start": "Sunday"}, "week_start"),
        ({"window": "week", "week_start": 0}, "week_start"),
        ({"scope": "model"}, "model"),
        ({"scope": "key", "scope_id": 99}, "scope_id"),
        ({"scope": "key"}, "scope_id"),
        ({"scope_id": 3}, "scope_id"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_the_api_refuses_an_invalid_limit_and_names_the_parameter(
    root: Api, body: dict[str, Any], param: str
) -> None:
    usual = {"scope": "platform", "metric": "tokens", "window": "day", "amount": 5}
    assert root.error("POST", "limits/", usual | body)[::2] == (400, param)
    assert not Limit.objects.exists()


def test_the_api_refuses_a_duplicate_limit(root: Api) -> None:
    body = {"scope": "platform", "metric": "tokens", "window": "day", "amount": 5}
    root.post("limits/", body)
    assert root.error("POST", "limits/", body)[0] == 400
