"""Quotas, alerts and webhooks under `/api/`: permissions, and secrets that are shown once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Tenant, with_key

from vinery_accounts.alerts import thresholds, webhooks
from vinery_accounts.models import Alert, AuditEntry, Limit, Role, Scope, User, Webhook
from vinery_accounts.outbound.addresses import read_networks
from vinery_accounts.services import changes
from vinery_accounts.usage.store import store_settlements

sys.path.insert(0, str(Path(__file__).parents[1]))
from usage_builders import admission, settlement
from webhook_receiver import Receiver, receiving

URL = "https://hooks.example.com/vinery"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.0/8"])
    with receiving() as started:
        yield started


def store_quota(scope: str, scope_id: int = 0, **more: Any) -> Limit:
    """Store a limit of 1000 tokens a day, or of the given values."""
    values = {"metric": "tokens", "window": "day", "amount": 1000} | more
    return changes.add(Limit(scope=scope, scope_id=scope_id, **values))


def use_tokens(tenant: Tenant, request_id: str = "r1") -> None:
    """Store a request of the first project that used 900 tokens now."""
    ids = {"project_id": tenant.one.pk, "organization_id": tenant.organization.pk}
    started = admission(request_id, started_at=datetime.now(UTC), **ids)
    store_settlements(
        [
            settlement(
                request_id,
                admission=started,
                num_prompt_tokens=890,
                num_output_tokens=10,
                num_reasoning_tokens=0,
            )
        ]
    )


def check_quotas() -> None:
    thresholds.check_quotas(datetime.now(UTC), (50, 80, 100), has_email=True)


# -- Quotas


def test_a_quota_shows_its_usage_and_the_time_of_its_reset(viewer: Api, ours: Tenant) -> None:
    limit = store_quota("project", ours.one.pk)
    store_quota("project", ours.one.pk, window="minute")
    use_tokens(ours)

    [listed] = viewer.get("quotas/")["data"]

    assert listed["id"] == limit.pk
    assert (listed["used"], listed["left"], listed["amount"]) == (900, 100, 1000)
    assert listed["window_start"] < datetime.now(UTC).isoformat() < listed["resets_at"]
    detail = viewer.get(f"quotas/{limit.pk}/")
    assert {**detail, "runs_out_at": None} == {**listed, "runs_out_at": None}


def test_users_see_only_the_quotas_of_their_organization(
    viewer: Api, root: Api, ours: Tenant, theirs: Tenant
) -> None:
    mine = store_quota("project", ours.one.pk).pk
    others = [store_quota("project", theirs.one.pk).pk, store_quota("platform").pk]

    assert viewer.column("quotas/", "id") == [mine]
    assert set(root.column("quotas/", "id")) == {mine, *others}
    for each in others:
        assert viewer.error("GET", f"quotas/{each}/") == (404, "not_found", None)


# -- Alerts


def test_alerts_show_the_state_of_their_deliveries(
    viewer: Api, root: Api, ours: Tenant, theirs: Tenant, make_user: Callable[..., User]
) -> None:
    owner = make_user("olga", Role.OWNER)
    User.objects.filter(pk=owner.pk).update(email="olga@example.com")
    store_quota("project", ours.one.pk)
    store_quota("organization", theirs.organization.pk)
    store_quota("platform")
    use_tokens(ours)
    use_tokens(theirs, "r2")
    check_quotas()

    alerts = viewer.get("alerts/")["data"]

    assert {each["scope"] for each in alerts} == {f"project:{ours.one.pk}"}
    assert sorted(each["percent"] for each in alerts) == [50, 80]
    [message] = next(each["deliveries"] for each in alerts if each["percent"] == 80)
    assert (message["receiver"], message["state"]) == ("e-mail to olga", "pending")
    assert len(root.get("alerts/")["data"]) == Alert.objects.count() == 7
    assert root.column("alerts/", "percent", state="pending") == [80]


def test_the_api_sets_and_validates_the_thresholds_of_a_limit(root: Api, ours: Tenant) -> None:
    body = {"scope": "project", "scope_id": ours.one.pk, "metric": "tokens", "window": "day"}
    created = root.post("limits/", {**body, "amount": 10, "alert_at": [50, 90]})
    assert created["alert_at"] == [50, 90]
    assert root.patch(f"limits/{created['id']}/", {"alert_at": None})["alert_at"] is None
    for wrong in ([90, 50], [0], [101], [50, 50], "often"):
        status, _, param = root.error("PATCH", f"limits/{created['id']}/", {"alert_at": wrong})
        assert (status, str(param).partition(".")[0]) == (400, "alert_at")


@pytest.mark.parametrize(
    ("metric", "window"), [("tokens", "minute"), ("requests", "minute"), ("concurrency", "none")]
)
def test_limits_without_alerts_take_no_thresholds(root: Api, metric: str, window: str) -> None:
    body = {"scope": "platform", "metric": metric, "window": window, "amount": 10}

    error = root.error("POST", "limits/", {**body, "alert_at": [50]})
    assert error == (400, "invalid_value", "alert_at")
    assert root.post("limits/", {**body, "alert_at": []})["alert_at"] == []


# -- Webhooks


def test_an_admin_creates_a_webhook_and_sees_its_secret_once(admin: Api, ours: Tenant) -> None:
    body = {"organization": ours.organization.pk, "name": "pager", "url": URL}

    created = admin.post("webhooks/", body)

    assert created["secret"].startswith("whsec_")
    assert "secret" not in admin.get(f"webhooks/{created['id']}/")
    assert admin.patch(f"webhooks/{created['id']}/", {"is_active": False})["is_active"] is False
    admin.delete(f"webhooks/{created['id']}/")
    entries = AuditEntry.objects.filter(target_kind="webhook").order_by("number")
    assert [entry.action for entry in entries] == [
        *("webhook.create", "webhook.update", "webhook.delete")
    ]
    assert {entry.organization_id for entry in entries} == {ours.organization.pk}
    assert created["secret"] not in str([entry.after for entry in entries])


def test_only_admins_see_and_change_webhooks_of_their_organization(
    member: Api, admin: Api, root: Api, ours: Tenant, theirs: Tenant
) -> None:
    mine, others, of_platform = (
        changes.add(webhooks.make(str(scope), URL, scope)[0])
        for scope in (ours.organization, theirs.organization, None)
    )

    assert admin.column("webhooks/", "id") == [mine.pk]
    assert member.column("webhooks/", "id") == []
    assert set(root.column("webhooks/", "id")) == {mine.pk, others.pk, of_platform.pk}
    body = {"name": "mine", "url": URL}
    assert admin.error("POST", "webhooks/", body)[0] == 403
    assert (
        member.error("POST", "webhooks/", {**body, "organization": ours.organization.pk})[0] == 403
    )
    their_body = {**body, "organization": theirs.organization.pk}
    assert admin.error("POST", "webhooks/", their_body)[0] == 400
    assert admin.error("DELETE", f"webhooks/{others.pk}/")[0] == 404
    assert root.post("webhooks/", body)["organization"] is None


@pytest.mark.parametrize(
    "url", ["http://hooks.example.com/", "https://169.254.169.254/latest", "https://127.0.0.1/"]
)
def test_the_api_refuses_a_webhook_to_a_forbidden_url(admin: Api, ours: Tenant, url: str) -> None:
    body = {"organization": ours.organization.pk, "name": "pager", "url": url}

    assert admin.error("POST", "webhooks/", body) == (400, "invalid_value", "url")
    assert not Webhook.objects.exists()


def test_an_admin_sends_a_test_message_to_a_webhook(
    admin: Api, ours: Tenant, receiver: Receiver
) -> None:
    body = {"organization": ours.organization.pk, "name": "pager", "url": receiver.url}
    created = admin.post("webhooks/", body)
    path = f"webhooks/{created['id']}/test/"

    assert admin.post(path, {}, 200) == {"is_delivered": True, "error": ""}
    receiver.statuses = [401]
    failed = {"is_delivered": False, "error": "The receiver answered 401."}
    assert admin.post(path, {}, 200) == failed
    assert len(receiver.requests) == 2


def test_a_key_with_the_usage_scope_reads_quotas_and_no_webhooks(
    ours: Tenant, make_key: Any
) -> None:
    store_quota("project", ours.one.pk)
    client = with_key(make_key(ours.one, scopes=[Scope.USAGE]))

    assert len(client.get("quotas/")["data"]) == 1
    assert client.error("GET", "webhooks/")[0] == 403


def test_an_admin_rotates_a_webhook_secret_and_sees_it_once(
    member: Api, admin: Api, ours: Tenant, receiver: Receiver
) -> None:
    body = {"organization": ours.organization.pk, "name": "pager", "url": receiver.url}
    created = admin.post("webhooks/", body)
    path = f"webhooks/{created['id']}"

    rotated = admin.post(f"{path}/rotate/", {}, 200)

    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != created["secret"]
    ends_at = datetime.fromisoformat(rotated["previous_secret_until"])
    assert timedelta(hours=23) < ends_at - datetime.now(UTC) <= timedelta(days=1)
    assert "secret" not in admin.get(f"{path}/")
    admin.post(f"{path}/test/", {}, 200)
    assert len(receiver.requests[0][1]["webhook-signature"].split(" ")) == 2

    assert admin.post(f"{path}/rotate", {"grace_s": 0}, 200)["previous_secret_until"] is None
    for wrong in (-1, 31 * 86_400, "soon"):
        refusal = admin.error("POST", f"{path}/rotate/", {"grace_s": wrong})
        assert refusal == (400, "invalid_value", "grace_s")
    assert member.error("POST", f"{path}/rotate/", {})[0] == 404
    assert admin.error("PATCH", f"{path}/", {"previous_secret_until": None})[0] == 400
