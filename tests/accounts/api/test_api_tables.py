"""Rules of all tables of the management API: visibility, pages, filters, errors, queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_client import Api, Tenant, make_tenant, with_key
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from row_builders import (
    stored_alert,
    stored_capture,
    stored_quarantined,
    stored_refusal,
    stored_reminder,
)

from vinery_accounts.alerts.webhooks import make as make_webhook
from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import (
    Alert,
    ApiKey,
    AuditEntry,
    Capture,
    Delivery,
    KeyReminder,
    Limit,
    Membership,
    ModelWeight,
    Organization,
    Project,
    QuarantinedRequest,
    RefusedRequest,
    Role,
    UsageRecord,
    User,
    Webhook,
)
from vinery_accounts.services import changes

Keys = Callable[..., NewKey]
TABLES = (
    *("organizations", "projects", "users", "memberships", "keys", "limits", "model-weights"),
    *("refusals", "audit", "quotas", "alerts", "key-reminders", "webhooks", "captures"),
    *("quarantine", "invitations"),
)


def store_limit(scope: str, scope_id: int, **more: Any) -> Limit:
    values = {"metric": "requests", "window": "minute", "amount": 9} | more
    return changes.add(Limit(scope=scope, scope_id=scope_id, **values))


@pytest.mark.parametrize("text", ["%ED%A0%80", "%ff", "%C3"])
def test_invalid_utf_8_in_a_url_causes_no_server_error(root: Api, text: str) -> None:
    for path in (f"limits/?scope={text}", f"limits/?{text}=1", f"audit/?search={text}", text):
        assert root.client.get(f"/api/{path}").status_code in (200, 400, 404), path


def test_an_id_must_be_a_whole_number_of_a_visible_object(
    owner: Api, ours: Tenant, theirs: Tenant
) -> None:
    def error_message(project: object) -> str:
        response = owner.request("POST", "keys/", {"name": "x", "project": project})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "project"
        return str(response.json()["error"]["message"])

    assert error_message(ours.one.pk + 0.5) == "project: Give an id, a whole number."
    assert error_message(True) == "project: Give an id, a whole number."
    for absent in (theirs.one.pk, 10**9):
        text = f"project: Project {absent} not found, or outside your roles."
        assert error_message(absent) == text


def test_a_row_that_is_not_found_is_named_by_its_id(
    owner: Api, root: Api, ours: Tenant, theirs: Tenant, make_key: Callable[..., NewKey]
) -> None:
    robot = with_key(make_key(ours.one, scopes=["manage"]))

    def message(api: Api, row_id: int) -> str:
        return str(api.request("GET", f"projects/{row_id}/").json()["error"]["message"])

    for absent in (theirs.one.pk, 10**9):
        assert message(owner, absent) == f"Project {absent} not found, or outside your roles."
        text = f"Project {absent} not found, or outside this key's project."
        assert message(robot, absent) == text
    assert message(root, 10**9) == f"Project {10**9} not found."


def test_a_project_name_is_unique_in_its_organization(
    owner: Api, ours: Tenant, theirs: Tenant
) -> None:
    path = f"projects/{ours.one.pk}/"

    assert owner.error("PATCH", path, {"name": ours.two.name})[:2] == (400, "invalid_value")
    assert owner.patch(path, {"name": ours.one.name})["name"] == ours.one.name
    changes.change(theirs.one, name="elsewhere")
    assert owner.patch(path, {"name": "elsewhere"})["name"] == "elsewhere"


def test_an_unknown_path_returns_a_link_to_the_openapi_document(root: Api) -> None:
    for path in ("", "nothing/"):
        response = root.request("GET", path)
        assert response.status_code == 404
        assert "/docs/ and /api/schema/" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "scopes"),
    [("keys/", "scope `manage` or `admin`."), ("usage/", "scope `usage`, `manage` or `admin`.")],
)
def test_the_error_for_missing_credentials_names_the_key_scope(path: str, scopes: str) -> None:
    response = Api().request("GET", path)

    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
    assert response.json()["error"]["message"].endswith(f"with a key that has the {scopes}")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(("usage/", name) for name in ("key", "model", "status", "group_by", "from", "limit")),
        *(("refusals/", name) for name in ("key_id", "scope", "is_shadow", "cursor")),
        *(("keys/", name) for name in ("project", "search", "state")),
        ("usage/export/", "key"),
    ],
)
def test_the_api_refuses_an_empty_filter_value(root: Api, path: str, name: str) -> None:
    assert root.error("GET", path, **{name: ""}) == (400, "invalid_value", name)


def test_the_api_refuses_an_empty_organization_or_project(root: Api, ours: Tenant) -> None:
    user = User.objects.create_user("carol")
    role = {"user": user.pk, "role": "owner", "organization": ours.organization.pk}
    hook = {"name": "pager", "url": "https://hooks.example.com/"}

    for path, body, name in (
        ("webhooks/", hook, "organization"),
        ("memberships/", role, "project"),
        ("memberships/", role, "organization"),
        ("users/", {"username": "new"}, "organization"),
    ):
        error = root.error("POST", path, {**body, name: ""})
        assert error == (400, "invalid_value", name)
    assert not Webhook.objects.exists()
    assert not Membership.objects.filter(user=user).exists()


def store_refusal(tenant: Tenant, number: int = 0) -> RefusedRequest:
    return stored_refusal(
        f"r{tenant.one.pk}-{number}",
        metric="requests",
        window="minute",
        scope=f"project:{tenant.one.pk}",
        project_id=tenant.one.pk,
        organization_id=tenant.organization.pk,
    )


def store_alert(tenant: Tenant, number: int = 0) -> Alert:
    created = stored_alert(
        limit_id=1000 + tenant.one.pk,
        organization_id=tenant.organization.pk,
        scope=f"project:{tenant.one.pk}",
        percent=1 + number,
    )
    Delivery.objects.create(alert=created, webhook=store_webhook(tenant), due_at=timezone.now())
    return created


def store_capture(tenant: Tenant, number: int = 0) -> Capture:
    return stored_capture(f"r{tenant.one.pk}-{number}", tenant.one.pk)


def store_quarantined(tenant: Tenant, number: int = 0) -> QuarantinedRequest:
    digest = f"{tenant.one.pk:x}{number:02x}"
    return stored_quarantined(digest, organization_id=tenant.organization.pk)


def store_reminder(key: ApiKey) -> KeyReminder:
    created = stored_reminder(key)
    Delivery.objects.create(reminder=created, user=key.owner, due_at=timezone.now())
    return created


def store_webhook(tenant: Tenant) -> Webhook:
    created, _ = make_webhook("pager", "https://hooks.example.com/", tenant.organization)
    return changes.add(created)


def store_rows(tenant: Tenant, make_key: Keys) -> dict[str, int]:
    """Store an object of the tenant for each table. Returns the ids."""
    key = make_key(tenant.one).key
    return {
        "organizations": tenant.organization.pk,
        "projects": tenant.one.pk,
        "users": key.owner_id,
        "memberships": Membership.objects.get(user=key.owner).pk,
        "keys": key.pk,
        "limits": store_limit("project", tenant.one.pk).pk,
        "refusals": store_refusal(tenant).pk,
        "quotas": store_limit("key", key.pk, window="day").pk,
        "alerts": store_alert(tenant).pk,
        "key-reminders": store_reminder(key).pk,
        "webhooks": store_webhook(tenant).pk,
        "audit": AuditEntry.objects.filter(organization_id=tenant.organization.pk)[0].pk,
    }


def test_refusals_show_if_the_request_was_refused_or_cut_short(viewer: Api, ours: Tenant) -> None:
    for number, http_status in enumerate((429, 200)):
        row = store_refusal(ours, number)
        UsageRecord.objects.create(
            request_id=row.request_id,
            created_at=row.created_at,
            http_status=http_status,
            is_streamed=False,
        )
    store_refusal(ours, 2)

    assert viewer.column("refusals/", "effect") == [None, "cut_short", "refused"]
    for effect in ("cut_short", "refused"):
        assert viewer.column("refusals/", "effect", effect=effect) == [effect]
    assert viewer.error("GET", "refusals/", effect="none")[::2] == (400, "effect")


def test_objects_of_another_organization_return_404(
    owner: Api, ours: Tenant, theirs: Tenant, make_key: Keys
) -> None:
    our_ids, their_ids = store_rows(ours, make_key), store_rows(theirs, make_key)

    for table in our_ids:
        assert owner.get(f"{table}/{our_ids[table]}/")["id"] == our_ids[table]
        assert owner.error("GET", f"{table}/{their_ids[table]}/") == (404, "not_found", None)
        assert owner.error("GET", f"{table}/999999999/") == (404, "not_found", None)
        ids = owner.column(f"{table}/", "id", limit=200)
        assert our_ids[table] in ids
        assert their_ids[table] not in ids
    for table, action in (
        *((table, "deactivate") for table in ("organizations", "projects", "users")),
        *(("keys", action) for action in ("pause", "resume", "revoke", "rotate")),
    ):
        assert owner.error("POST", f"{table}/{their_ids[table]}/{action}/")[0] == 404
    for table in ("organizations", "projects", "users", "keys", "limits", "memberships"):
        assert owner.error("PATCH", f"{table}/{their_ids[table]}/", {})[0] == 404
    for table in ("organizations", "projects", "users", "limits", "memberships"):
        assert owner.error("DELETE", f"{table}/{their_ids[table]}/")[0] == 404


@pytest.mark.parametrize("table", TABLES)
def test_lists_refuse_unknown_and_invalid_parameters(root: Api, table: str) -> None:
    assert root.error("GET", f"{table}/", colour="red") == (400, "unknown_parameter", "colour")
    assert root.error("GET", f"{table}/", limit=0) == (400, "invalid_value", "limit")
    assert root.error("GET", f"{table}/", limit=201) == (400, "invalid_value", "limit")
    assert root.error("GET", f"{table}/", cursor="x") == (400, "invalid_value", "cursor")
    assert root.error("GET", f"{table}/", limit=["1", "2"]) == (400, "invalid_value", "limit")


def test_pages_return_each_row_once(root: Api, db: None) -> None:
    for number in range(7):
        changes.add(Organization(name=f"org {number}"))
    names, cursor, pages = [], None, 0
    while True:
        page = root.get("organizations/", limit=3, **({"cursor": cursor} if cursor else {}))
        names += [row["name"] for row in page["data"]]
        pages += 1
        assert page["object"] == "list"
        assert page["has_more"] is (page["next_cursor"] is not None)
        if pages == 2:
            changes.add(Organization(name="org 0 again"))  # It sorts before the next page.
            back = root.get("organizations/", limit=3, cursor=page["previous_cursor"])
            assert [row["name"] for row in back["data"]] == ["org 0 again", "org 1", "org 2"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"org {number}" for number in range(7)]
    assert pages == 3


@pytest.mark.parametrize("table", TABLES)
def test_the_number_of_queries_does_not_depend_on_the_length_of_a_list(
    owner: Api, ours: Tenant, make_key: Keys, make_user: Callable[..., User], table: str
) -> None:
    changes.add(ModelWeight(model="m"))
    store_rows(ours, make_key)
    store_capture(ours)
    store_quarantined(ours)
    changes.invite("new", ours.one, Role.MEMBER)
    owner.get(f"{table}/", limit=200)

    def num_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert owner.get(f"{table}/", limit=200)["data"]
        return len(queries)

    before = num_queries()
    for number in range(8):
        project = changes.add(Project(organization=ours.organization, name=f"p{number}"))
        new = make_key(project)
        store_limit("key", new.key.pk)
        store_refusal(ours, number + 1)
        store_capture(ours, number + 1)
        store_quarantined(ours, number + 1)
        changes.invite(f"new {number}", project, Role.MEMBER)
        store_limit("key", new.key.pk, window="day")
        store_alert(ours, number + 1)
        changes.add(ModelWeight(model=f"m{number}"))
        tenant = make_tenant(f"org{number}")
        changes.set_role(User.objects.get(username="owner"), tenant.organization, Role.VIEWER)
    assert num_queries() == before
    # The list of quotas also reads the usage in each window.
    assert before <= (9 if table == "quotas" else 5)


def test_refusals_show_the_limit_and_have_filters(owner: Api, ours: Tenant, theirs: Tenant) -> None:
    store_refusal(ours)
    store_refusal(theirs)
    (row,) = owner.get("refusals/", metric="requests", **{"from": "2020-01-01T00:00Z"})["data"]
    assert (row["scope"], row["amount"], row["needed"]) == (f"project:{ours.one.pk}", 1, 1)
    assert owner.column("refusals/", "id", to="2020-01-01T00:00Z") == []
    assert owner.column("refusals/", "id", is_shadow="true") == []
    assert owner.error("POST", "refusals/", {}) == (405, "method_not_allowed", None)


def test_an_owner_searches_the_audit_log_and_a_superuser_verifies_it(
    root: Api, owner: Api, ours: Tenant
) -> None:
    owner.patch(f"projects/{ours.one.pk}/", {"name": "renamed"})

    (entry,) = owner.get("audit/", search="renamed")["data"]
    assert (entry["actor"], entry["action"]) == ("owner", "project.update")
    assert owner.column("audit/", "action", action="organization.create") == ["organization.create"]
    assert owner.error("GET", "audit/verify/")[0] == 403
    verdict = root.get("audit/verify/")
    assert verdict["is_whole"] is True
    assert verdict["newest_hash"] == AuditEntry.objects.latest("number").hash
    assert root.get("audit/verify/", newest_hash=entry["hash"])["is_whole"] is True
    assert root.get("audit/verify/", newest_hash="f" * 64)["broken"] == "cut"
    assert root.error("GET", "audit/verify/", newest_hash="x")[2] == "newest_hash"
    for method in ("POST", "PATCH", "DELETE"):
        assert root.error(method, f"audit/{entry['id']}/", {})[0] == 405


def test_responses_are_not_cached_and_have_a_request_id(root: Api) -> None:
    for response in (root.request("GET", "keys/"), root.request("GET", "keys/", colour="red")):
        assert response["cache-control"] == "no-store"
        assert response["x-request-id"].startswith("req_")


def test_paths_work_without_the_last_slash(root: Api) -> None:
    created = root.post("organizations", {"name": "acme"})
    assert root.get(f"organizations/{created['id']}") == created
    assert root.post(f"organizations/{created['id']}/deactivate", status=200)["is_active"] is False


def test_an_unavailable_database_returns_503(viewer: Api) -> None:
    def raise_error(*args: object) -> None:
        raise OperationalError("connection refused")

    with connection.execute_wrapper(raise_error):
        error = viewer.error("GET", "keys")

    assert error == (503, "unavailable", None)
