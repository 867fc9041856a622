"""What holds for all tables of the management API: scope, pages, filters, errors, queries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml
from api_client import Api, Tenant, make_tenant
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from django.utils import timezone

from accounts.alerts.webhooks import make as make_webhook
from accounts.keys.lifecycle import NewKey
from accounts.models import (
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
    RefusedRequest,
    Role,
    UsageRecord,
    User,
    Webhook,
)
from accounts.services import changes

Keys = Callable[..., NewKey]
TABLES = (
    *("organizations", "projects", "users", "memberships", "keys", "limits", "model-weights"),
    *("refusals", "audit", "quotas", "alerts", "key-reminders", "webhooks", "captures"),
)


def limit(scope: str, scope_id: int, **more: Any) -> Limit:
    values = {"metric": "requests", "window": "minute", "amount": 9} | more
    return changes.add(Limit(scope=scope, scope_id=scope_id, **values))


@pytest.mark.parametrize("shape", ["[", '{"name":['])
def test_a_body_that_is_nested_too_deeply_is_no_fault_of_the_server(root: Api, shape: str) -> None:
    assert root.refusal("POST", "organizations/", shape * 100_000) == (400, "invalid_json", None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "limits/", {"scope": "\ud800"}),
        ("POST", "limits/", {"scope": "platform", "metric": "x\udfff"}),
        ("POST", "limits/", {"\ud800": 1}),
        ("POST", "memberships/", {"role": "\ud800"}),
        ("POST", "keys/", {"name": "k", "scopes": ["usage", "\udbff"]}),
        ("POST", "organizations/", {"name": {"deep": ["\ud800"]}}),
        ("PATCH", "organizations/{}/", {"name": "\ud800"}),
        ("POST", "organizations/{}/activate/", {"\udc00": "x"}),
    ],
)
def test_half_a_surrogate_pair_is_no_fault_of_the_server(
    root: Api, ours: Tenant, method: str, path: str, body: object
) -> None:
    asked = root.refusal(method, path.format(ours.organization.pk), body)

    assert asked == (400, "invalid_json", None)


def test_a_whole_surrogate_pair_is_a_character(root: Api) -> None:
    assert root.post("organizations/", '{"name": "\\ud83d\\ude80"}')["name"] == "\N{ROCKET}"


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_body_that_is_too_large_is_reported_so(
    root: Api, ours: Tenant, settings: Any, method: str
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    path = "organizations/" if method == "POST" else f"organizations/{ours.organization.pk}/"
    answer = root.ask(method, path, {"name": "x" * 1000})

    assert answer.status_code == 413
    error = answer.json()["error"]
    assert error["code"] == "request_too_large"
    assert error["message"] == "The request body is larger than 64 MB."


def ask_in_chunks(new: NewKey, body: bytes) -> int:
    """The status of a request for a new key, whose length no user has reported."""
    headers = {
        "Authorization": f"Bearer {new.secret}",
        "Content-Type": "application/json",
        "Transfer-Encoding": "chunked",
    }
    coded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/api/keys/", "headers": coded}
    request = ASGIRequest(scope, io.BytesIO(body))
    response = resolve("/api/keys/").func(request)
    return int(response.status_code)


def test_a_body_in_chunks_is_read_up_to_its_limit(
    ours: Tenant, key_in: Keys, settings: Any
) -> None:
    manages = key_in(ours.one, scopes=["manage"])

    body = json.dumps({"name": "in chunks", "project": ours.one.pk}).encode()
    assert ask_in_chunks(manages, body) == 201
    assert ApiKey.objects.filter(name="in chunks").exists()
    assert ask_in_chunks(manages, b"") == 400
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    with pytest.raises(RequestDataTooBig):  # which Django answers by 413, as above
        ask_in_chunks(manages, b" " * 1001)


@pytest.mark.parametrize("text", ["%ED%A0%80", "%ff", "%C3"])
def test_bytes_of_an_address_that_are_no_characters_are_no_fault_of_the_server(
    root: Api, text: str
) -> None:
    for path in (f"limits/?scope={text}", f"limits/?{text}=1", f"audit/?search={text}", text):
        assert root.client.get(f"/api/{path}").status_code in (200, 400, 404), path


def test_an_id_is_a_whole_number_of_something_that_one_sees(
    owner: Api, ours: Tenant, theirs: Tenant
) -> None:
    def result(project: object) -> str:
        answer = owner.ask("POST", "keys/", {"name": "x", "project": project})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "project"
        return str(answer.json()["error"]["message"])

    assert result(ours.one.pk + 0.5) == "project: Give an id, a whole number."
    assert result(True) == "project: Give an id, a whole number."
    assert (
        result(theirs.one.pk)
        == result(10**9)
        == "project: There is no project of this id, or not for you."
    )


def test_a_project_does_not_get_the_name_of_another_of_its_organisation(
    owner: Api, ours: Tenant, theirs: Tenant
) -> None:
    path = f"projects/{ours.one.pk}/"

    assert owner.refusal("PATCH", path, {"name": ours.two.name})[:2] == (400, "invalid_value")
    assert owner.patch(path, {"name": ours.one.name})["name"] == ours.one.name
    changes.change(theirs.one, name="elsewhere")
    assert owner.patch(path, {"name": "elsewhere"})["name"] == "elsewhere"


def test_a_weight_that_cannot_be_counted_with_is_refused(root: Api) -> None:
    row = root.post("model-weights/", {"model": "tiny-chat", "output": 1000})

    for wrong in (1000.5, 1e308):
        asked = root.refusal("PATCH", f"model-weights/{row['id']}/", {"output": wrong})
        assert asked == (400, "invalid_value", "output")


def test_a_user_who_looks_for_what_is_not_there_is_led_to_the_document(root: Api) -> None:
    for path in ("", "nothing/"):
        answer = root.ask("GET", path)
        assert answer.status_code == 404
        assert "/api/schema/" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "scopes"),
    [("keys/", "scope `manage`."), ("usage/", "scope `usage` or `manage`.")],
)
def test_a_user_who_comes_without_anything_is_reported_what_to_send(path: str, scopes: str) -> None:
    answer = Api().ask("GET", path)

    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["message"].endswith(f"with a key that has the {scopes}")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(("usage/", name) for name in ("key", "model", "status", "group_by", "from", "limit")),
        *(("refusals/", name) for name in ("key_id", "scope", "is_shadow", "cursor")),
        *(("keys/", name) for name in ("project", "search", "state")),
        ("usage/export/", "key"),
    ],
)
def test_a_filter_without_a_value_does_not_stand_for_everything(
    root: Api, path: str, name: str
) -> None:
    assert root.refusal("GET", path, **{name: ""}) == (400, "invalid_value", name)


def test_an_empty_text_is_no_scope_of_a_wider_one(root: Api, ours: Tenant) -> None:
    user = User.objects.create_user("somebody")
    role = {"user": user.pk, "role": "owner", "organization": ours.organization.pk}
    hook = {"name": "pager", "url": "https://hooks.example.com/"}

    for path, body, name in (
        ("webhooks/", hook, "organization"),
        ("memberships/", role, "project"),
        ("memberships/", role, "organization"),
        ("users/", {"username": "new"}, "organization"),
    ):
        asked = root.refusal("POST", path, {**body, name: ""})
        assert asked == (400, "invalid_value", name)
    assert not Webhook.objects.exists()
    assert not Membership.objects.filter(user=user).exists()


def test_a_limit_of_what_is_not_there_or_not_seen_is_reported_so(
    owner: Api, root: Api, theirs: Tenant, key_in: Keys
) -> None:
    kind = {"metric": "requests", "window": "day", "amount": 5}
    for scope, there in (
        ("key", key_in(theirs.one).key.pk),
        ("project", theirs.one.pk),
        ("organization", theirs.organization.pk),
    ):
        for scope_id in (there, 10**9):
            body = {"scope": scope, "scope_id": scope_id, **kind}
            assert owner.refusal("POST", "limits/", body) == (400, "invalid_value", "scope_id")
        assert root.refusal("POST", "limits/", body) == (400, "invalid_value", "scope_id")


def refuse(scope: Tenant, number: int = 0) -> RefusedRequest:
    return RefusedRequest.objects.create(
        request_id=f"r{scope.one.pk}-{number}",
        created_at=timezone.now(),
        model="tiny-chat",
        metric="requests",
        window="minute",
        scope=f"project:{scope.one.pk}",
        amount=1,
        level=1,
        needed=1,
        project_id=scope.one.pk,
        organization_id=scope.organization.pk,
    )


def alert(scope: Tenant, number: int = 0) -> Alert:
    made = Alert.objects.create(
        limit_id=1000 + scope.one.pk,
        organization_id=scope.organization.pk,
        scope=f"project:{scope.one.pk}",
        metric="tokens",
        window="day",
        amount=1,
        percent=1 + number,
        num_used=1,
        window_start=timezone.now(),
        created_at=timezone.now(),
    )
    Delivery.objects.create(alert=made, webhook=webhook(scope), due_at=timezone.now())
    return made


def keep(scope: Tenant, number: int = 0) -> Capture:
    now = timezone.now()
    sizes = {"num_body_bytes": 1, "num_answer_bytes": 1}
    cut = {"is_body_cut": False, "is_answer_cut": False, "is_redacted": False}
    return Capture.objects.create(
        request_id=f"r{scope.one.pk}-{number}",
        project_id=scope.one.pk,
        created_at=now,
        expires_at=now + timedelta(hours=1),
        **sizes,
        **cut,
    )


def reminder(scope: Tenant, key: ApiKey) -> KeyReminder:
    made = KeyReminder.objects.create(
        key_id=key.pk,
        organization_id=scope.organization.pk,
        event="expires",
        happens_at=timezone.now(),
        days_before=1,
        key_name=key.name,
        hint=key.hint,
        owner_name=key.owner.username,
        project_name=str(scope.one),
        created_at=timezone.now(),
    )
    Delivery.objects.create(reminder=made, user=key.owner, due_at=timezone.now())
    return made


def webhook(scope: Tenant) -> Webhook:
    made, _ = make_webhook("pager", "https://hooks.example.com/", scope.organization)
    return changes.add(made)


def rows_of(scope: Tenant, key_in: Keys) -> dict[str, int]:
    """An id of each table, of what is in this scope."""
    key = key_in(scope.one).key
    return {
        "organizations": scope.organization.pk,
        "projects": scope.one.pk,
        "users": key.owner_id,
        "memberships": Membership.objects.get(user=key.owner).pk,
        "keys": key.pk,
        "limits": limit("project", scope.one.pk).pk,
        "refusals": refuse(scope).pk,
        "quotas": limit("key", key.pk, window="day").pk,
        "alerts": alert(scope).pk,
        "key-reminders": reminder(scope, key).pk,
        "webhooks": webhook(scope).pk,
        "audit": AuditEntry.objects.filter(organization_id=scope.organization.pk)[0].pk,
    }


def test_refusals_show_what_was_refused_from_what_was_cut_short(viewer: Api, ours: Tenant) -> None:
    for number, http_status in enumerate((429, 200)):
        row = refuse(ours, number)
        UsageRecord.objects.create(
            request_id=row.request_id,
            created_at=row.created_at,
            http_status=http_status,
            is_streamed=False,
        )
    refuse(ours, 2)

    assert viewer.names("refusals/", "effect") == [None, "cut_short", "refused"]
    for effect in ("cut_short", "refused"):
        assert viewer.names("refusals/", "effect", effect=effect) == [effect]
    assert viewer.refusal("GET", "refusals/", effect="none")[::2] == (400, "effect")


def test_what_is_elsewhere_is_not_there(
    owner: Api, ours: Tenant, theirs: Tenant, key_in: Keys
) -> None:
    here, there = rows_of(ours, key_in), rows_of(theirs, key_in)

    for table in here:
        assert owner.get(f"{table}/{here[table]}/")["id"] == here[table]
        assert owner.refusal("GET", f"{table}/{there[table]}/") == (404, "not_found", None)
        assert owner.refusal("GET", f"{table}/999999999/") == (404, "not_found", None)
        ids = owner.names(f"{table}/", "id", limit=200)
        assert here[table] in ids
        assert there[table] not in ids
    for table, act in (
        *((table, "deactivate") for table in ("organizations", "projects", "users")),
        *(("keys", act) for act in ("pause", "resume", "revoke", "rotate")),
    ):
        assert owner.refusal("POST", f"{table}/{there[table]}/{act}/")[0] == 404
    for table in ("organizations", "projects", "users", "keys", "limits", "memberships"):
        assert owner.refusal("PATCH", f"{table}/{there[table]}/", {})[0] == 404
    for table in ("organizations", "projects", "users", "limits", "memberships"):
        assert owner.refusal("DELETE", f"{table}/{there[table]}/")[0] == 404


@pytest.mark.parametrize("table", TABLES)
def test_unknown_parameters_are_refused_by_name(root: Api, table: str) -> None:
    assert root.refusal("GET", f"{table}/", colour="red") == (400, "unknown_parameter", "colour")
    assert root.refusal("GET", f"{table}/", limit=0) == (400, "invalid_value", "limit")
    assert root.refusal("GET", f"{table}/", limit=201) == (400, "invalid_value", "limit")
    assert root.refusal("GET", f"{table}/", cursor="x") == (400, "invalid_value", "cursor")
    assert root.refusal("GET", f"{table}/", limit=["1", "2"]) == (400, "invalid_value", "limit")


def test_pages_lead_through_all_rows_once(root: Api, db: None) -> None:
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
            changes.add(Organization(name="org 0 again"))  # before what is read next
            back = root.get("organizations/", limit=3, cursor=page["previous_cursor"])
            assert [row["name"] for row in back["data"]] == ["org 0 again", "org 1", "org 2"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"org {number}" for number in range(7)]
    assert pages == 3


@pytest.mark.parametrize("table", TABLES)
def test_a_long_list_takes_no_query_for_each_row(
    owner: Api, ours: Tenant, key_in: Keys, person: Callable[..., User], table: str
) -> None:
    changes.add(ModelWeight(model="m"))
    rows_of(ours, key_in)
    keep(ours)
    owner.get(f"{table}/", limit=200)

    def num_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert owner.get(f"{table}/", limit=200)["data"]
        return len(queries)

    before = num_queries()
    for number in range(8):
        project = changes.add(Project(organization=ours.organization, name=f"p{number}"))
        new = key_in(project)
        limit("key", new.key.pk)
        refuse(ours, number + 1)
        keep(ours, number + 1)
        limit("key", new.key.pk, window="day")
        alert(ours, number + 1)
        changes.add(ModelWeight(model=f"m{number}"))
        scope = make_tenant(f"org{number}")
        changes.set_role(User.objects.get(username="owner"), scope.organization, Role.VIEWER)
    assert num_queries() == before
    # Quotas also read the sums of their windows.
    assert before <= (9 if table == "quotas" else 5)


def test_limits_are_set_from_above(
    root: Api, owner: Api, admin: Api, ours: Tenant, key_in: Keys
) -> None:
    key = key_in(ours.one).key
    common = {"metric": "tokens", "window": "day", "amount": 1000}
    by_key = {**common, "scope": "key", "scope_id": key.pk}
    by_project = {**common, "scope": "project", "scope_id": ours.one.pk}
    by_organization = {**common, "scope": "organization", "scope_id": ours.organization.pk}

    made = admin.post("limits/", by_key)
    assert admin.patch(f"limits/{made['id']}/", {"amount": 5, "is_shadow": True})["amount"] == 5
    admin.delete(f"limits/{made['id']}/")
    admin.post("limits/", by_project)
    for body in (by_organization, {**common, "scope": "platform"}):
        assert owner.refusal("POST", "limits/", body)[0] == 403
        kept = root.post("limits/", body)["id"]
        assert owner.refusal("PATCH", f"limits/{kept}/", {"amount": 2})[0] == 403
        assert owner.refusal("DELETE", f"limits/{kept}/")[0] == 403
        assert owner.get(f"limits/{kept}/")["amount"] == 1000
    weights = {"model": "tiny-chat", "cached": 0.1}
    assert owner.refusal("POST", "model-weights/", weights)[0] == 403
    assert root.post("model-weights/", weights)["output"] == 1


def test_a_limit_that_is_changed_keeps_what_is_not_named(root: Api) -> None:
    body = {"scope": "model", "model": "tiny-chat", "metric": "tokens", "window": "day"}
    more = {"amount": 9, "time_zone": "Europe/Berlin", "is_shadow": True, "alert_at": [90]}
    path = f"limits/{root.post('limits/', body | more)['id']}/"

    result = root.patch(path, {"amount": 8})

    assert {name: result[name] for name in body | more} == body | more | {"amount": 8}
    assert root.patch(path, {"alert_at": None})["is_shadow"] is True


def test_a_limit_of_a_week_shows_and_changes_its_first_day(root: Api) -> None:
    body = {"scope": "platform", "metric": "tokens", "window": "week", "amount": 9}
    result = root.post("limits/", body)
    path = f"limits/{result['id']}/"

    assert result["week_start"] == "monday"
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
def test_a_limit_that_cannot_be_meant_is_refused_by_name(
    root: Api, body: dict[str, Any], param: str
) -> None:
    usual = {"scope": "platform", "metric": "tokens", "window": "day", "amount": 5}
    assert root.refusal("POST", "limits/", usual | body)[::2] == (400, param)
    assert not Limit.objects.exists()


def test_two_limits_of_a_kind_are_one_too_many(root: Api) -> None:
    body = {"scope": "platform", "metric": "tokens", "window": "day", "amount": 5}
    root.post("limits/", body)
    assert root.refusal("POST", "limits/", body)[0] == 400


def test_refusals_show_why(owner: Api, ours: Tenant, theirs: Tenant) -> None:
    refuse(ours)
    refuse(theirs)
    (row,) = owner.get("refusals/", metric="requests", **{"from": "2020-01-01T00:00Z"})["data"]
    assert (row["scope"], row["amount"], row["needed"]) == (f"project:{ours.one.pk}", 1, 1)
    assert owner.names("refusals/", "id", to="2020-01-01T00:00Z") == []
    assert owner.names("refusals/", "id", is_shadow="true") == []
    assert owner.refusal("POST", "refusals/", {}) == (405, "method_not_allowed", None)


def test_the_log_is_searched_and_verified(root: Api, owner: Api, ours: Tenant) -> None:
    owner.patch(f"organizations/{ours.organization.pk}/", {"name": "renamed"})

    (entry,) = owner.get("audit/", search="renamed")["data"]
    assert (entry["actor"], entry["action"]) == ("owner", "organization.update")
    assert owner.names("audit/", "action", action="organization.create") == ["organization.create"]
    assert owner.refusal("GET", "audit/verify/")[0] == 403
    verdict = root.get("audit/verify/")
    assert verdict["is_whole"] is True
    assert verdict["newest_hash"] == AuditEntry.objects.latest("number").hash
    assert root.get("audit/verify/", newest_hash=entry["hash"])["is_whole"] is True
    assert root.get("audit/verify/", newest_hash="f" * 64)["broken"] == "cut"
    assert root.refusal("GET", "audit/verify/", newest_hash="x")[2] == "newest_hash"
    for method in ("POST", "PATCH", "DELETE"):
        assert root.refusal(method, f"audit/{entry['id']}/", {})[0] == 405


@pytest.mark.parametrize(
    ("body", "status"), [("{", 400), ("[]", 400), ('"x"', 400), ("null", 400), ("1", 400)]
)
def test_a_body_that_is_no_object_is_refused(root: Api, body: str, status: int) -> None:
    assert root.refusal("POST", "organizations/", body)[0] == status


def test_other_bodies_and_methods_are_refused(root: Api, ours: Tenant) -> None:
    response = root.client.post("/api/organizations/", "name=x", content_type="text/plain")
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"
    assert root.refusal("PUT", f"organizations/{ours.organization.pk}/", {})[0] == 405


def test_answers_are_for_one_reader_and_have_an_id(root: Api) -> None:
    for response in (root.ask("GET", "keys/"), root.ask("GET", "keys/", colour="red")):
        assert response["cache-control"] == "no-store"
        assert response["x-request-id"].startswith("req_")


# -- The OpenAPI document


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As the command writes it, which ends with an error for any warning."""
    file = tmp_path_factory.mktemp("openapi") / "schema.yml"
    call_command("spectacular", "--fail-on-warn", "--validate", "--file", str(file))
    return yaml.safe_load(file.read_text())


def test_every_operation_is_described(document: Any) -> None:
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) > 40
    for path, method, operation in operations:
        assert path.startswith("/api/")
        assert operation["summary"], (path, method)
        assert len(operation["description"]) > 20, (path, method)
        assert "default" in operation["responses"]
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (path, method, parameter)


def test_the_document_is_served(document: Any) -> None:
    response = Api().client.get("/api/schema/", headers={"accept": "application/json"})
    assert response.status_code == 200
    assert set(response.json()["paths"]) == set(document["paths"])


def test_the_last_slash_may_be_left_out(root: Api) -> None:
    made = root.post("organizations", {"name": "acme"})
    assert root.get(f"organizations/{made['id']}") == made
    assert root.post(f"organizations/{made['id']}/deactivate", status=200)["is_active"] is False


def test_a_database_that_is_unavailable_is_reported_as_such(viewer: Api) -> None:
    def unavailable(*args: object) -> None:
        raise OperationalError("connection refused")

    with connection.execute_wrapper(unavailable):
        refused = viewer.refusal("GET", "keys")

    assert refused == (503, "unavailable", None)
