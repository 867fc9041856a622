"""Captured texts in the management API: for admins of the organisation, and audited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from api_client import Api, Tenant, with_key

from accounts.captures.store import CapturedRequest, store_captured
from accounts.keys.lifecycle import NewKey
from accounts.models import AuditEntry, Capture, Project, Role, User
from accounts.services import changes

PROMPT = b'{"prompt": "Tell nobody: \xff"}'


def keep(project: Project, request_id: str, hours_ago: float = 0) -> None:
    changes.change(project, capture_hours=9)
    one = CapturedRequest(
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
    assert store_captured([one])


def test_lists_have_no_texts_and_are_filtered(root: Api, ours: Tenant) -> None:
    keep(ours.one, "req_1", hours_ago=3)
    keep(ours.one, "req_2")
    keep(ours.two, "req_3")

    page = root.ask("GET", "captures/")
    assert b"Tell" not in page.content
    assert [row["request_id"] for row in page.json()["data"]] == ["req_3", "req_2", "req_1"]
    row = page.json()["data"][0]
    assert (row["project_id"], row["num_body_bytes"], row["is_redacted"]) == (
        ours.two.pk,
        len(PROMPT),
        False,
    )
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert root.names("captures/", "request_id", project_id=ours.one.pk, **{"from": since}) == [
        "req_2"
    ]
    assert root.names("captures/", "request_id", to=since) == ["req_1"]
    assert not AuditEntry.objects.filter(action="capture.read").exists()


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
def test_leaders_read_and_delete_and_the_log_shows_so(
    as_role: Callable[..., Api], ours: Tenant, theirs: Tenant, role: str
) -> None:
    keep(ours.one, "req_1")
    keep(theirs.one, "req_2")
    leader = as_role(role)

    assert leader.names("captures/", "request_id") == ["req_1"]
    assert leader.get("captures/req_1/")["body"] == '{"prompt": "Tell nobody: �"}'
    entry = AuditEntry.objects.get(action="capture.read")
    assert (entry.actor, entry.target) == (role, "req_1")
    leader.delete("captures/req_1/")
    assert [row.request_id for row in Capture.stored.all()] == ["req_2"]
    for method in ("GET", "DELETE"):
        assert leader.refusal(method, "captures/req_2/") == (404, "not_found", None)


def test_others_see_neither_texts_nor_rules_and_set_nothing(
    as_role: Callable[..., Api],
    person: Callable[..., User],
    as_user: Callable[[User], Api],
    ours: Tenant,
) -> None:
    keep(ours.one, "req_1")
    changes.change(ours.one, capture_redactions=["Nightingale"])
    clients = [
        as_role(Role.MEMBER),
        as_role(Role.VIEWER),
        as_user(person("p", Role.ADMIN, ours.one)),
    ]
    path = f"projects/{ours.one.pk}/"
    for client in clients:
        assert client.names("captures/", "request_id") == []
        for method in ("GET", "DELETE"):
            assert client.refusal(method, "captures/req_1/")[0] == 404
        result = client.get(path)
        assert result["capture_hours"] == 9
        assert "capture_redactions" not in result
        for change in ({"capture_hours": 0}, {"capture_redactions": []}):
            assert client.refusal("PATCH", path, change)[0] == 403
    assert clients[2].patch(path, {"name": "renamed"})["name"] == "renamed"


def test_leaders_set_hours_and_rules(admin: Api, ours: Tenant) -> None:
    path = f"projects/{ours.one.pk}/"
    result = admin.patch(path, {"capture_hours": 24, "capture_redactions": ["email", " x "]})
    assert (result["capture_hours"], result["capture_redactions"]) == (24, ["email", " x "])
    for name, value in (("capture_hours", 721), ("capture_redactions", ["x" * 201])):
        assert admin.refusal("PATCH", path, {name: value})[:2] == (400, "invalid_value")
    keep(ours.one, "req_1")
    admin.patch(path, {"capture_hours": 0})
    assert not Capture.stored.exists()


def test_a_key_needs_the_scope_and_an_owner_who_leads(
    person: Callable[..., User], key_in: Callable[..., NewKey], ours: Tenant
) -> None:
    keep(ours.one, "req_1")
    boss = person("boss", Role.ADMIN)
    for scopes, owner, status in (
        (["manage"], boss, 200),
        (["usage", "inference"], boss, 403),
        (["manage"], None, 404),
    ):
        key = key_in(ours.one, scopes=scopes, owner=owner)
        assert with_key(key).ask("GET", "captures/req_1/").status_code == status
    elsewhere = key_in(ours.two, scopes=["manage"], owner=boss)
    assert with_key(elsewhere).ask("GET", "captures/req_1/").status_code == 404
