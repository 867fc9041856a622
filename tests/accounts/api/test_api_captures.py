"""Captured texts and requests in quarantine in the management API: who reads and releases them."""

from datetime import UTC, datetime, timedelta

import pytest
from api_client import Api, Tenant
from row_builders import captured, stored_quarantined

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.captures.store import store_captured
from vinery_accounts.models import AuditEntry, Capture, Project, QuarantinedRequest, Role

PROMPT = b'{"prompt": "Tell nobody: \xff"}'


def store_capture(project: Project, request_id: str, hours_ago: float = 0) -> None:
    changes.change(project, capture_hours=9)
    created_at = datetime.now(UTC) - timedelta(hours=hours_ago)
    assert store_captured([captured(project, request_id, PROMPT, created_at=created_at)])


def test_the_list_of_captures_has_filters_and_no_texts(root: Api, ours: Tenant) -> None:
    store_capture(ours.one, "req_1", hours_ago=3)
    store_capture(ours.one, "req_2")
    store_capture(ours.two, "req_3")

    page = root.request("GET", "captures/")
    assert b"Tell" not in page.content
    assert [row["request_id"] for row in page.json()["data"]] == ["req_3", "req_2", "req_1"]
    row = page.json()["data"][0]
    assert (row["project_id"], row["num_body_bytes"]) == (ours.two.pk, len(PROMPT))
    assert row["is_redacted"] is False
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    query = {"project_id": ours.one.pk, "from": since}
    assert root.column("captures/", "request_id", **query) == ["req_2"]
    assert root.column("captures/", "request_id", to=since) == ["req_1"]
    assert not AuditEntry.objects.filter(action="capture.read").exists()


@table("role", [Role.OWNER, Role.ADMIN])
def test_the_audit_log_records_who_reads_captures(ours: Tenant, theirs: Tenant, role: str) -> None:
    name = f"req_of_{role}"
    store_capture(ours.one, name)
    store_capture(theirs.one, f"{name}_2")
    reader = ours.as_role(role)

    assert reader.column("captures/", "request_id") == [name]
    assert reader.get(f"captures/{name}/")["body"] == '{"prompt": "Tell nobody: �"}'
    entry = AuditEntry.objects.get(action="capture.read", target=name)
    assert entry.actor == role
    reader.delete(f"captures/{name}/")
    assert not Capture.stored.filter(request_id=name).exists()
    for method in ("GET", "DELETE"):
        assert reader.error(method, f"captures/{name}_2/") == (404, "not_found", None)
    assert Capture.stored.filter(request_id=f"{name}_2").exists()


def test_no_others_see_captures_but_a_key_with_the_scope_of_an_admin(ours: Tenant) -> None:
    store_capture(ours.one, "req_1")
    changes.change(ours.one, capture_redactions=["Nightingale"])
    clients = [
        ours.as_role(Role.MEMBER),
        ours.as_role(Role.VIEWER),
        ours.as_role(Role.ADMIN, ours.one),
    ]
    path = f"projects/{ours.one.pk}/"
    for client in clients:
        assert client.column("captures/", "request_id") == []
        for method in ("GET", "DELETE"):
            assert client.error(method, "captures/req_1/")[0] == 404
        shown = client.get(path)
        assert shown["capture_hours"] == 9
        assert "capture_redactions" not in shown
        assert shown["response_days"] == 30
        kept = ({"response_days": 0}, {"max_stored_mb": 0})
        for change in ({"capture_hours": 0}, {"capture_redactions": []}, *kept):
            assert client.error("PATCH", path, change)[0] == 403
    assert clients[2].patch(path, {"name": "renamed"})["name"] == "renamed"

    admin = ours.user("chief", Role.ADMIN)
    for project, scopes, owner, status in (
        (ours.one, ["manage"], admin, 200),
        (ours.one, ["usage", "inference"], admin, 403),
        (ours.one, ["manage"], None, 404),
        (ours.two, ["manage"], admin, 404),
    ):
        client = ours.with_key(project, scopes=scopes, owner=owner)
        assert client.request("GET", "captures/req_1/").status_code == status


OURS, THEIRS = "a" * 32, "b" * 32


@pytest.fixture
def quarantined(ours: Tenant, theirs: Tenant) -> None:
    for digest, tenant in ((OURS, ours), (THEIRS, theirs)):
        ids = {"organization_id": tenant.organization.pk, "project_id": tenant.one.pk}
        stored_quarantined(digest, request_id=f"req_{digest[0]}", **ids)


def test_superusers_release_requests(
    quarantined: None, viewer: Api, root: Api, ours: Tenant, theirs: Tenant
) -> None:
    assert viewer.column("quarantine/", "digest") == [OURS]
    row = viewer.get(f"quarantine/{OURS}/")
    assert (row["digest"], row["request_id"], row["model"]) == (OURS, "req_a", "tiny-chat")
    assert row["project_id"] == ours.one.pk

    assert sorted(root.column("quarantine/", "digest")) == [OURS, THEIRS]
    ids = {"organization_id": theirs.organization.pk, "project_id": theirs.one.pk}
    for name, value in {**ids, "digest": THEIRS, "request_id": "req_b"}.items():
        assert root.column("quarantine/", "digest", **{name: value}) == [THEIRS]
    assert root.column("quarantine/", "digest", model="other") == []

    keys = (ours.with_key(ours.one, scopes=[scope]) for scope in ("usage", "manage"))
    for client in (*keys, ours.as_role(Role.OWNER)):
        assert client.column("quarantine/", "digest") == [OURS]
        assert client.error("POST", f"quarantine/{OURS}/release/")[0] == 403

    released = root.post(f"quarantine/{OURS}/release/", status=200)
    assert released["digest"] == OURS
    assert {row.digest for row in QuarantinedRequest.stored.all()} == {THEIRS}
    assert AuditEntry.objects.get(action="quarantine.release").actor == "root"
    assert root.error("POST", f"quarantine/{OURS}/release/")[0] == 404
    for method in ("PATCH", "DELETE"):
        assert root.error(method, f"quarantine/{THEIRS}/", {})[0] == 405
