"""Limits and model weights in the management API."""

from datetime import datetime, timedelta
from typing import Any

from api_client import Api, Tenant

from tests.tables import table
from vinery_accounts.models import Limit

DAILY = {"metric": "tokens", "window": "day", "amount": 1000}
OF_PLATFORM = {**DAILY, "scope": "platform"}


def test_admins_limit_keys_and_projects(root: Api, owner: Api, admin: Api, ours: Tenant) -> None:
    of_organization = {**DAILY, "scope": "organization", "scope_id": ours.organization.pk}

    created = admin.post(
        "limits/", {**DAILY, "scope": "key", "scope_id": ours.key(ours.one).key.pk}
    )
    path = f"limits/{created['id']}/"
    assert admin.patch(path, {"amount": 5, "is_shadow": True})["amount"] == 5
    admin.delete(path)
    admin.post("limits/", {**DAILY, "scope": "project", "scope_id": ours.one.pk})
    of_each = {**DAILY, "scope": "end_user", "scope_id": ours.one.pk}
    path = f"limits/{admin.post('limits/', of_each)['id']}/"
    assert admin.patch(path, {"amount": 5})["amount"] == 5
    for field in ({"window": "none", "metric": "weighted_tokens"}, {"alert_at": [50]}):
        assert admin.error("POST", "limits/", of_each | field)[::2] == (400, next(iter(field)))
    assert {row["scope"] for row in admin.get("quotas/")["data"]} == {"project"}
    for body in (of_organization, OF_PLATFORM):
        assert owner.error("POST", "limits/", body)[0] == 403
        path = f"limits/{root.post('limits/', body)['id']}/"
        assert root.error("POST", "limits/", body)[0] == 400  # a duplicate
        assert owner.error("PATCH", path, {"amount": 2})[0] == 403
        assert owner.error("DELETE", path)[0] == 403
        assert owner.get(path)["amount"] == 1000
    weights = {"model": "tiny-chat", "cached": 0.1}
    assert owner.error("POST", "model-weights/", weights)[0] == 403
    row = root.post("model-weights/", weights)
    assert row["output"] == 1
    for wrong in (100_000.5, 1e308):
        error = root.error("PATCH", f"model-weights/{row['id']}/", {"output": wrong})
        assert error == (400, "invalid_value", "output")
    assert root.patch(f"model-weights/{row['id']}/", {"output": 100_000})["output"] == 100_000


def test_a_weekly_limit_has_a_first_day_and_a_patch_keeps_other_fields(root: Api) -> None:
    created = root.post("limits/", OF_PLATFORM | {"window": "week"})
    assert created["week_start"] == "monday"
    changed = root.patch(f"limits/{created['id']}/", {"week_start": "sunday"})
    assert changed["week_start"] == "sunday"
    [quota] = root.get("quotas/")["data"]
    since, until = (datetime.fromisoformat(quota[name]) for name in ("window_start", "resets_at"))
    assert (quota["week_start"], since.strftime("%A")) == ("sunday", "Sunday")
    assert until - since == timedelta(days=7)

    body = {"scope": "model", "model": "tiny-chat", "metric": "tokens", "window": "day"}
    more = {"amount": 9, "time_zone": "Europe/Berlin", "is_shadow": True, "alert_at": [90]}
    path = f"limits/{root.post('limits/', body | more)['id']}/"

    changed = root.patch(path, {"amount": 8})
    assert {name: changed[name] for name in body | more} == body | more | {"amount": 8}
    assert root.patch(path, {"alert_at": None})["is_shadow"] is True


@table(
    "body, param",
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
        ({"scope": "end_user", "scope_id": 99}, "scope_id"),
        ({"scope": "end_user"}, "scope_id"),
        ({"scope_id": 3}, "scope_id"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_limit_is_refused_by_parameter(root: Api, body: dict[str, Any], param: str) -> None:
    assert root.error("POST", "limits/", OF_PLATFORM | body)[::2] == (400, param)
    assert not Limit.objects.exists()
