"""Rules of all tables of the management API: visibility, pages, filters, errors, queries."""

from unittest.mock import Mock

import pytest
from api_client import Api, Tenant, as_user
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from isolation_tenants import fill
from row_builders import stored_refusal

from tests.tables import table
from vinery_accounts import models
from vinery_accounts.access import changes

TABLES = (
    *("organizations", "projects", "users", "memberships", "keys", "limits", "model-weights"),
    *("refusals", "audit", "quotas", "alerts", "webhooks", "captures"),
    *("quarantine", "invitations"),
)


@pytest.mark.stores
@table("text", ["%ED%A0%80", "%ff", "%C3"])
def test_invalid_utf_8_in_a_url_causes_no_server_error(root: Api, text: str) -> None:
    for path in (f"limits/?scope={text}", f"limits/?{text}=1", f"audit/?search={text}", text):
        assert root.client.get(f"/api/{path}").status_code in (200, 400, 404), path


def test_a_missing_row_is_named(owner: Api, ours: Tenant, theirs: Tenant, root: Api) -> None:
    def message(api: Api, method: str, path: str, body: object = None) -> str:
        return str(api.request(method, path, body).json()["error"]["message"])

    def message_for(project: object) -> str:
        return message(owner, "POST", "keys/", {"name": "x", "project": project})

    for wrong in (ours.one.pk + 0.5, True):
        assert message_for(wrong) == "project: Give an id, a whole number."
    robot = ours.with_key(ours.one, scopes=["manage"])
    for absent in (theirs.one.pk, 10**9):
        text = f"Project {absent} not found, or outside"
        assert message_for(absent) == f"project: {text} your roles."
        assert message(owner, "GET", f"projects/{absent}/") == f"{text} your roles."
        assert message(robot, "GET", f"projects/{absent}/") == f"{text} this key's project."
    assert message(root, "GET", f"projects/{10**9}/") == f"Project {10**9} not found."


@table(
    "path, scopes",
    [("keys/", "scope `manage` or `admin`."), ("usage/", "scope `usage`, `manage` or `admin`.")],
)
def test_the_error_for_missing_credentials_names_the_key_scope(path: str, scopes: str) -> None:
    response = Api().request("GET", path)

    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
    assert response.json()["error"]["message"].endswith(f"with a key that has the {scopes}")


@table(
    "path, name",
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
    user = models.User.objects.create_user("carol")
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
    assert not models.Webhook.objects.exists()
    assert not models.Membership.objects.filter(user=user).exists()


def store_refusal(tenant: Tenant, number: int = 0) -> models.RefusedRequest:
    ids = {"project_id": tenant.one.pk, "organization_id": tenant.organization.pk}
    request_id, scope = f"r{tenant.one.pk}-{number}", f"project:{tenant.one.pk}"
    return stored_refusal(request_id, metric="requests", window="minute", scope=scope, **ids)


def test_refusals_show_if_the_request_was_refused_or_cut_short(viewer: Api, ours: Tenant) -> None:
    for number, http_status in enumerate((429, 200)):
        row = store_refusal(ours, number)
        of = {"request_id": row.request_id, "created_at": row.created_at}
        models.UsageRecord.objects.create(**of, http_status=http_status, is_streamed=False)
    store_refusal(ours, 2)

    (row, *_) = viewer.get("refusals/", metric="requests", **{"from": "2020-01-01T00:00Z"})["data"]
    assert (row["scope"], row["amount"], row["needed"]) == (f"project:{ours.one.pk}", 1, 1)
    for none in ({"to": "2020-01-01T00:00Z"}, {"is_shadow": "true"}):
        assert viewer.column("refusals/", "id", **none) == []
    assert viewer.error("POST", "refusals/", {}) == (405, "method_not_allowed", None)

    assert viewer.column("refusals/", "effect") == [None, "cut_short", "refused"]
    for effect in ("cut_short", "refused"):
        assert viewer.column("refusals/", "effect", effect=effect) == [effect]
    assert viewer.error("GET", "refusals/", effect="none")[::2] == (400, "effect")


@table("rows", TABLES)
def test_lists_refuse_unknown_and_invalid_parameters(root: Api, rows: str) -> None:
    assert root.error("GET", f"{rows}/", colour="red") == (400, "unknown_parameter", "colour")
    assert root.error("GET", f"{rows}/", cursor="x") == (400, "invalid_value", "cursor")
    for limit in (0, 201, ["1", "2"]):
        assert root.error("GET", f"{rows}/", limit=limit) == (400, "invalid_value", "limit")


@pytest.mark.stores
def test_pages_return_each_row_once(root: Api, db: None) -> None:
    for number in range(7):
        changes.add(models.Organization(name=f"org {number}"))
    names, cursor, pages = [], None, 0
    while True:
        page = root.get("organizations/", limit=3, **({"cursor": cursor} if cursor else {}))
        names += [row["name"] for row in page["data"]]
        pages += 1
        assert page["object"] == "list"
        assert page["has_more"] is (page["next_cursor"] is not None)
        if pages == 2:
            changes.add(models.Organization(name="org 0 again"))  # sorts before the next page
            back = root.get("organizations/", limit=3, cursor=page["previous_cursor"])
            assert [row["name"] for row in back["data"]] == ["org 0 again", "org 1", "org 2"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"org {number}" for number in range(7)]
    assert pages == 3


@pytest.mark.django_db
def test_each_row_of_a_list_is_returned_by_its_id() -> None:
    """`test_isolation.py` sweeps the rows that others see."""
    owner = as_user(fill("acme", 5_000_001).users["owner"])
    changes.add(models.ModelWeight(model="tiny-chat"))

    for rows in set(TABLES) - {"captures"}:  # whose texts are not real
        id_name = "digest" if rows == "quarantine" else "id"
        ids = owner.column(f"{rows}/", id_name)
        assert ids, rows
        assert [owner.get(f"{rows}/{each}/")[id_name] for each in ids] == ids


def test_the_number_of_queries_does_not_depend_on_the_length_of_a_list(owner: Api) -> None:
    user, organizations = models.User.objects.get(username="owner"), iter(range(1, 99))

    def nums_of_queries(num_more: int) -> dict[str, int]:
        for _ in range(num_more):
            number = next(organizations)
            tenant = fill(f"org{number}", 5_000_001 + 1000 * number)
            changes.set_role(user, tenant.organization, models.Role.OWNER)
            changes.add(models.ModelWeight(model=f"m{number}"))
        return {rows: num_queries(owner, f"{rows}/") for rows in TABLES}

    nums_of_queries(1)  # fills caches
    before = nums_of_queries(0)
    assert nums_of_queries(3) == before
    # The list of quotas also reads the usage in each of three windows.
    assert before.pop("quotas") <= 18
    # Limits and weights name models, so the visible models are read, too: two queries.
    assert before.pop("limits") <= 6
    assert before.pop("model-weights") <= 6
    assert max(before.values()) <= 5


def num_queries(api: Api, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert api.get(path, limit=200)["data"]
    return len(queries)


def test_owners_search_the_log_superusers_verify_it(root: Api, owner: Api, ours: Tenant) -> None:
    owner.patch(f"projects/{ours.one.pk}/", {"name": "renamed"})

    (entry,) = owner.get("audit/", search="renamed")["data"]
    assert (entry["actor"], entry["action"]) == ("owner", "project.update")
    assert owner.column("audit/", "action", action="organization.create") == ["organization.create"]
    assert owner.error("GET", "audit/verify/")[0] == 403
    verdict = root.get("audit/verify/")
    assert verdict["is_whole"] is True
    assert verdict["newest_hash"] == models.AuditEntry.objects.latest("number").hash
    assert root.get("audit/verify/", newest_hash=entry["hash"])["is_whole"] is True
    assert root.get("audit/verify/", newest_hash="f" * 64)["broken"] == "cut"
    assert root.error("GET", "audit/verify/", newest_hash="x")[2] == "newest_hash"
    for method in ("POST", "PATCH", "DELETE"):
        assert root.error(method, f"audit/{entry['id']}/", {})[0] == 405


def test_paths_and_headers_have_conventions(root: Api) -> None:
    for response in (root.request("GET", "keys/"), root.request("GET", "keys/", colour="red")):
        assert response["cache-control"] == "no-store"
        assert response["x-request-id"].startswith("req_")

    created = root.post("organizations", {"name": "acme"})
    assert root.get(f"organizations/{created['id']}") == created
    assert root.post(f"organizations/{created['id']}/deactivate", status=200)["is_active"] is False

    for path in ("", "nothing/"):
        response = root.request("GET", path)
        assert response.status_code == 404
        message = response.json()["error"]["message"]
        assert ("/api/schema/" in message, "/docs/" in message) == (True, True)


def test_an_unavailable_database_returns_503(viewer: Api) -> None:
    with connection.execute_wrapper(Mock(side_effect=OperationalError("connection refused"))):
        assert viewer.error("GET", "keys") == (503, "unavailable", None)
