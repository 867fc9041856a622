"""Captured texts in the management API. Only admins of the organisation read them, and the audit
log records each read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from api_client import Api, Tenant, with_key

from vinery_accounts.captures.store import CapturedRequest, store_captured
from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import AuditEntry, Capture, Project, Role, User
from vinery_accounts.services import changes

PROMPT = b'{"prompt": "Tell nobody: \xff"}'


def store_capture(project: Project, request_id: str, hours_ago: float = 0) -> None:
    changes.change(project, capture_hours=9)
    request = CapturedRequest(
        request_id=request_id,
        project_id=project.pk,
        created_at=datetime.now(UTC) - timedelta(hours=hours_ago),
        dialect="v1",
        endpoint="completions",
        model="tiny-chat",
        body=PROMPT,
        answer=b"{}",
        num_body_bytes=len(PROMPT),
        num_answer_bytes=2,
    )
    assert store_captured([request])


def test_the_list_of_captures_has_filters_and_no_texts(root: Api, ours: Tenant) -> None:
    store_capture(ours.one, "req_1", hours_ago=3)
    store_capture(ours.one, "req_2")
    store_capture(ours.two, "req_3")

    page = root.request("GET", "captures/")
    assert b"Tell" not in page.content
    assert [row["request_id"] for row in page.json()["data"]] == ["req_3", "req_2", "req_1"]
    row = page.json()["data"][0]
    assert (row["project_id"], row["num_body_bytes"], row["is_redacted"]) == (
        ours.two.pk,
        len(PROMPT),
        False,
    )
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert root.column("captures/", "request_id", project_id=ours.one.pk, **{"from": since}) == [
        "req_2"
    ]
    assert root.column("captures/", "request_id", to=since) == ["req_1"]
    assert not AuditEntry.objects.filter(action="capture.read").exists()


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
def test_owners_and_admins_read_and_delete_captures_and_the_audit_log_records_it(
    as_role: Callable[..., Api], ours: Tenant, theirs: Tenant, role: str
) -> None:
    store_capture(ours.one, "req_1")
    store_capture(theirs.one, "req_2")
    reader = as_role(role)

    assert reader.column("captures/", "request_id") == ["req_1"]
    assert reader.get("captures/req_1/")["body"] == '{"prompt": "Tell nobody: �"}'
    entry = AuditEntry.objects.get(action="capture.read")
    assert (entry.actor, entry.target) == (role, "req_1")
    reader.delete("captures/req_1/")
    assert [row.request_id for row in Capture.stored.all()] == ["req_2"]
    for method in ("GET", "DELETE"):
        assert reader.error(method, "captures/req_2/") == (404, "not_found", None)


def test_other_users_see_no_captures_and_change_no_capture_settings(
    as_role: Callable[..., Api],
    make_user: Callable[..., User],
    as_user: Callable[[User], Api],
    ours: Tenant,
) -> None:
    store_capture(ours.one, "req_1")
    changes.change(ours.one, capture_redactions=["Nightingale"])
    clients = [
        as_role(Role.MEMBER),
        as_role(Role.VIEWER),
        as_user(make_user("p", Role.ADMIN, ours.one)),
    ]
    path = f"projects/{ours.one.pk}/"
    for client in clients:
        assert client.column("captures/", "request_id") == []
        for method in ("GET", "DELETE"):
            assert client.error(method, "captures/req_1/")[0] == 404
        shown = client.get(path)
        assert shown["capture_hours"] == 9
        assert "capture_redactions" not in shown
        for change in ({"capture_hours": 0}, {"capture_redactions": []}):
            assert client.error("PATCH", path, change)[0] == 403
    assert clients[2].patch(path, {"name": "renamed"})["name"] == "renamed"


def test_an_admin_sets_the_capture_hours_and_redactions(admin: Api, ours: Tenant) -> None:
    path = f"projects/{ours.one.pk}/"
    changed = admin.patch(path, {"capture_hours": 24, "capture_redactions": ["email", " x "]})
    assert (changed["capture_hours"], changed["capture_redactions"]) == (24, ["email", " x "])
    for name, value in (("capture_hours", 721), ("capture_redactions", ["x" * 201])):
        assert admin.error("PATCH", path, {name: value})[:2] == (400, "invalid_value")
    store_capture(ours.one, "req_1")
    admin.patch(path, {"capture_hours": 0})
    assert not Capture.stored.exists()


def test_a_key_reads_captures_if_it_has_the_scope_and_its_owner_is_an_admin(
    make_user: Callable[..., User], make_key: Callable[..., NewKey], ours: Tenant
) -> None:
    store_capture(ours.one, "req_1")
    admin = make_user("admin", Role.ADMIN)
    for scopes, owner, status in (
        (["manage"], admin, 200),
        (["usage", "inference"], admin, 403),
        (["manage"], None, 404),
    ):
        key = make_key(ours.one, scopes=scopes, owner=owner)
        assert with_key(key).request("GET", "captures/req_1/").status_code == status
    key_of_other_project = make_key(ours.two, scopes=["manage"], owner=admin)
    assert with_key(key_of_other_project).request("GET", "captures/req_1/").status_code == 404
