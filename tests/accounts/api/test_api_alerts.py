"""Quotas, alerts and webhooks under `/api/`: permissions, and secrets that are shown once."""

from datetime import UTC, datetime, timedelta
from typing import Any

from api_client import Api, Tenant
from row_builders import logged, stored_limit
from usage_builders import store, tokens
from webhook_receiver import Receiver

from vinery_accounts.alerts import quotas
from vinery_accounts.models import Alert, AuditEntry, Role, Scope, User, Webhook

URL = "https://hooks.example.com/vinery"


def use_tokens(tenant: Tenant, request_id: str = "r1") -> None:
    """Store a request of the first project that used 900 tokens now."""
    ids = {"project_id": tenant.one.pk, "organization_id": tenant.organization.pk}
    store(request_id, started_at=datetime.now(UTC), **ids, **tokens(890, 10))


def test_a_quota_shows_use_and_reset(viewer: Api, root: Api, ours: Tenant, theirs: Tenant) -> None:
    limit = stored_limit("project", ours.one.pk, amount=1000)
    stored_limit("project", ours.one.pk, window="minute")
    others = [stored_limit("project", theirs.one.pk).pk, stored_limit("platform").pk]
    use_tokens(ours)

    [listed] = viewer.get("quotas/")["data"]
    assert listed["id"] == limit.pk
    assert (listed["used"], listed["left"], listed["amount"]) == (900, 100, 1000)
    assert listed["window_start"] < datetime.now(UTC).isoformat() < listed["resets_at"]
    detail = viewer.get(f"quotas/{limit.pk}/")
    assert {**detail, "runs_out_at": None} == {**listed, "runs_out_at": None}
    assert set(root.column("quotas/", "id")) == {limit.pk, *others}
    for each in others:
        assert viewer.error("GET", f"quotas/{each}/") == (404, "not_found", None)

    client = ours.with_key(ours.one, scopes=[Scope.USAGE])
    assert len(client.get("quotas/")["data"]) == 1
    assert client.error("GET", "webhooks/")[0] == 403


def test_alerts_show_their_deliveries(viewer: Api, root: Api, ours: Tenant, theirs: Tenant) -> None:
    owner = ours.user("olga", Role.OWNER)
    User.objects.filter(pk=owner.pk).update(email="olga@example.com")
    stored_limit("project", ours.one.pk, amount=1000)
    stored_limit("organization", theirs.organization.pk, amount=1000)
    stored_limit("platform", amount=1000)
    use_tokens(ours)
    use_tokens(theirs, "r2")
    quotas.check_quotas(datetime.now(UTC), (50, 80, 100), has_email=True)

    alerts = viewer.get("alerts/")["data"]

    assert {each["scope"] for each in alerts} == {f"project:{ours.one.pk}"}
    assert sorted(each["percent"] for each in alerts) == [50, 80]
    [message] = next(each["deliveries"] for each in alerts if each["percent"] == 80)
    assert (message["receiver"], message["state"]) == ("e-mail to olga", "pending")
    assert len(root.get("alerts/")["data"]) == Alert.objects.count() == 7
    assert root.column("alerts/", "percent", state="pending") == [80]


def pager(ours: Tenant, url: str = URL) -> dict[str, Any]:
    return {"organization": ours.organization.pk, "name": "pager", "url": url}


def test_an_admin_creates_a_webhook_and_sees_its_secret_once(
    admin: Api, member: Api, root: Api, ours: Tenant
) -> None:
    for url in ("http://hooks.example.com/", "https://169.254.169.254/x", "https://127.0.0.1/"):
        assert admin.error("POST", "webhooks/", pager(ours, url)) == (400, "invalid_value", "url")
    of_platform = {"name": "mine", "url": URL}
    assert admin.error("POST", "webhooks/", of_platform)[0] == 403
    assert member.error("POST", "webhooks/", pager(ours))[0] == 403
    assert not Webhook.objects.exists()
    assert root.post("webhooks/", of_platform)["organization"] is None
    assert admin.column("webhooks/") == []

    created = admin.post("webhooks/", pager(ours))

    assert created["secret"].startswith("whsec_")
    path = f"webhooks/{created['id']}/"
    assert "secret" not in admin.get(path)
    assert admin.patch(path, {"is_active": False})["is_active"] is False
    assert admin.error("PATCH", path, {"previous_secret_until": None})[0] == 400
    admin.delete(path)
    assert member.column("webhooks/") == []
    entries = AuditEntry.objects.filter(target_kind="webhook", actor="admin")
    actions = ["webhook.create", "webhook.update", "webhook.delete"]
    assert logged(target_kind="webhook", actor="admin") == actions
    assert {entry.organization_id for entry in entries} == {ours.organization.pk}
    assert created["secret"] not in str([entry.after for entry in entries])


def test_an_admin_tests_and_rotates_a_webhook(admin: Api, ours: Tenant, receiver: Receiver) -> None:
    created = admin.post("webhooks/", pager(ours, receiver.url))
    path = f"webhooks/{created['id']}"
    assert admin.post(f"{path}/test/", {}, 200) == {"is_delivered": True, "error": ""}
    receiver.statuses = [401]
    failed = {"is_delivered": False, "error": "The receiver answered 401."}
    assert admin.post(f"{path}/test/", {}, 200) == failed
    assert len(receiver.requests) == 2

    rotated = admin.post(f"{path}/rotate/", {}, 200)

    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != created["secret"]
    ends_at = datetime.fromisoformat(rotated["previous_secret_until"])
    assert timedelta(hours=23) < ends_at - datetime.now(UTC) <= timedelta(days=1)
    assert "secret" not in admin.get(f"{path}/")
    admin.post(f"{path}/test/", {}, 200)
    assert len(receiver.requests[2][1]["webhook-signature"].split(" ")) == 2

    assert admin.post(f"{path}/rotate", {"grace_s": 0}, 200)["previous_secret_until"] is None
    for wrong in (-1, 31 * 86_400, "soon"):
        refusal = admin.error("POST", f"{path}/rotate/", {"grace_s": wrong})
        assert refusal == (400, "invalid_value", "grace_s")
