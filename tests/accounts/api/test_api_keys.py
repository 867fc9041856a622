"""Management of keys over the API, and keys with the scope `manage`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from api_client import Api, Tenant, with_key
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from vinery_accounts.keys.lifecycle import NewKey, find_key, revoke_key
from vinery_accounts.models import ApiKey, AuditEntry, Role, User
from vinery_accounts.services import changes

Keys = Callable[..., NewKey]


def test_a_member_creates_a_key_and_sees_its_secret_once(member: Api, ours: Tenant) -> None:
    created = member.post(
        "keys/",
        {
            "name": "laptop",
            "project": ours.one.pk,
            "models": ["tiny-chat"],
            "networks": ["10.0.0.0/8"],
            "endpoints": ["chat/completions"],
        },
    )

    key = find_key(created["secret"])
    assert key.owner.username == "member"
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat"], ["10.0.0.0/8"])
    assert created["state"] == "active"
    assert created["scopes"] == ["inference", "usage"]
    read = member.get(f"keys/{key.pk}/")
    assert read == {name: value for name, value in created.items() if name != "secret"}
    assert created["secret"] not in str(member.get("keys/"))
    assert key.digest not in str(read)


def test_a_key_shows_when_its_rotation_is_due(admin: Api, ours: Tenant) -> None:
    days = {"rotate_every_days": 90, "rotation_grace_days": 7}
    created = admin.post("keys/", {"name": "crawler", "project": ours.one.pk, **days})
    path = f"keys/{created['id']}/"

    key = ApiKey.objects.get(pk=created["id"])
    assert parse_datetime(created["rotation_due_at"]) == key.rotation_due_at
    assert created["is_rotation_overdue"] is False
    assert parse_datetime(created["expires_at"]) == key.expires_at
    # A client can send back the values that it read.
    sent = {name: created[name] for name in (*days, "expires_at")}
    assert admin.patch(path, sent)["expires_at"] == created["expires_at"]

    ApiKey.objects.filter(pk=key.pk).update(created_at=timezone.now() - timedelta(days=91))
    assert admin.get(path)["is_rotation_overdue"] is True
    assert admin.post(f"{path}rotate/")["is_rotation_overdue"] is False
    assert admin.get(path)["rotation_due_at"] is None


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"rotate_every_days": 0}, "rotate_every_days"),
        ({"rotate_every_days": 10**30}, "rotate_every_days"),
        ({"rotate_every_days": "often"}, "rotate_every_days"),
        ({"rotation_grace_days": 7}, "rotation_grace_days"),
        (
            {"rotate_every_days": 9, "rotation_grace_days": 7, "expires_at": "2999-01-01T00:00Z"},
            "expires_at",
        ),
        ({"rotation_due_at": "2999-01-01T00:00Z"}, "rotation_due_at"),
    ],
)
def test_the_api_refuses_invalid_rotation_days_and_names_the_parameter(
    admin: Api, ours: Tenant, make_key: Keys, values: dict[str, Any], param: str
) -> None:
    body = {"name": "crawler", "project": ours.one.pk, **values}
    assert admin.error("POST", "keys/", body)[2] == param
    assert admin.error("PATCH", f"keys/{make_key(ours.one).key.pk}/", values)[2] == param


def test_a_key_has_a_note(admin: Api, ours: Tenant) -> None:
    new = admin.post("keys/", {"name": "laptop", "project": ours.one.pk, "note": "ask Ann"})
    path = f"keys/{new['id']}/"

    assert new["note"] == "ask Ann"
    assert admin.patch(path, {"note": "ask Bob"})["note"] == "ask Bob"
    assert admin.post(f"{path}rotate/")["note"] == "ask Bob"
    assert admin.error("PATCH", path, {"note": "x" * 501}) == (400, "invalid_value", "note")


def test_an_admin_changes_pauses_resumes_rotates_and_revokes_a_key(
    admin: Api, ours: Tenant, make_key: Keys
) -> None:
    old = make_key(ours.one)
    path = f"keys/{old.key.pk}/"

    assert admin.patch(path, {"name": "renamed", "models": ["small"]})["models"] == ["small"]
    assert admin.post(f"{path}pause/", status=200)["state"] == "paused"
    assert admin.post(f"{path}resume/", status=200)["state"] == "active"
    new = admin.post(f"{path}rotate/", {"grace_s": 60})
    assert (new["name"], new["models"]) == ("renamed", ["small"])
    assert find_key(new["secret"]).pk == new["id"]
    replaced = admin.get(path)
    assert replaced["replaced_by"] == new["id"]
    assert replaced["state"] == "active"
    assert admin.post(f"{path}revoke/", status=200)["state"] == "revoked"
    assert admin.error("POST", f"{path}resume/") == (409, "conflict", None)
    assert admin.error("POST", f"{path}rotate/") == (409, "conflict", None)
    mine = AuditEntry.objects.filter(actor="admin").order_by("number")
    assert [entry.action for entry in mine] == [
        *("key.update", "key.pause", "key.resume", "key.create", "key.rotate", "key.revoke"),
    ]
    assert {entry.ip for entry in mine} == {"127.0.0.1"}


def test_members_manage_their_own_keys_and_only_read_other_keys(
    member: Api, viewer: Api, ours: Tenant, make_key: Keys
) -> None:
    other = f"keys/{make_key(ours.one).key.pk}/"
    mine = member.post("keys/", {"name": "mine", "project": ours.two.pk})["id"]

    member.patch(f"keys/{mine}/", {"name": "still mine"})
    for action in ("pause/", "revoke/", "rotate/"):
        assert member.error("POST", other + action)[:2] == (403, "forbidden")
    assert member.error("PATCH", other, {"name": "stolen"})[0] == 403
    assert viewer.error("POST", "keys/", {"name": "x", "project": ours.one.pk})[0] == 403
    assert viewer.column("keys/") == ["still mine", "key"]
    assert not ApiKey.objects.exclude(name__in=["still mine", "key"]).exists()


def test_admins_create_keys_for_members(
    admin: Api, member: Api, ours: Tenant, make_user: Callable[..., User], root: Api
) -> None:
    bob, viewer = make_user("bob", Role.MEMBER, ours.one), make_user("passer-by", Role.VIEWER)
    body = {"name": "for bob", "project": ours.one.pk, "owner": bob.pk}

    assert member.error("POST", "keys/", body)[0] == 403
    assert admin.post("keys/", body)["owner_name"] == "bob"
    body["owner"] = viewer.pk
    assert admin.error("POST", "keys/", body) == (400, "invalid_value", "owner")
    body["owner"] = User.objects.get(username="root").pk
    assert admin.error("POST", "keys/", body) == (400, "invalid_value", "owner")


def test_an_admin_cannot_obtain_a_management_key_of_an_owner(
    admin: Api, owner: Api, ours: Tenant, make_key: Keys
) -> None:
    owner_user = User.objects.get(username="owner")
    body = {
        "name": "x",
        "project": ours.one.pk,
        "owner": owner_user.pk,
        "scopes": ["inference", "manage"],
    }
    assert admin.error("POST", "keys/", body)[0] == 403
    management_key = make_key(ours.one, owner=owner_user, scopes=["manage"]).key
    plain_key = make_key(ours.one, owner=owner_user).key
    assert admin.error("POST", f"keys/{management_key.pk}/rotate/")[0] == 403
    assert admin.error("PATCH", f"keys/{plain_key.pk}/", {"scopes": ["manage"]})[0] == 403
    assert admin.error("PATCH", f"keys/{management_key.pk}/", {"scopes": ["inference"]})[0] == 403
    assert admin.post(f"keys/{management_key.pk}/pause/", status=200)["state"] == "paused"
    assert ApiKey.objects.count() == 2
    assert owner.post("keys/", body)["scopes"] == ["inference", "manage"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": ""}, "name"),
        ({"project": 0}, "project"),
        ({"project": "nine"}, "project"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes.0"),
        ({"networks": ["the office"]}, "networks"),
        ({"models": [""]}, "models.0"),
        ({"models": "tiny-chat"}, "models"),
        ({"expires_at": "2020-01-01T00:00Z"}, "expires_at"),
        ({"digest": "0"}, "digest"),
        ({"hint": "vny"}, "hint"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_the_api_refuses_an_invalid_key_and_names_the_parameter(
    member: Api, ours: Tenant, body: dict[str, Any], param: str
) -> None:
    status, _, named = member.error("POST", "keys/", {"name": "x", "project": ours.one.pk} | body)

    assert (status, named) == (400, param)
    assert not ApiKey.objects.exists()


def test_the_owner_and_the_project_of_a_key_cannot_change(
    admin: Api, ours: Tenant, make_key: Keys
) -> None:
    path = f"keys/{make_key(ours.one).key.pk}/"
    for name in ("owner", "project", "secret", "digest", "state"):
        assert admin.error("PATCH", path, {name: 1}) == (400, "unknown_parameter", name)


def test_the_list_of_keys_has_filters(admin: Api, ours: Tenant, make_key: Keys) -> None:
    paused, expired, revoked = (
        make_key(ours.one, name).key for name in ("paused", "over", "ended")
    )
    make_key(ours.two, "running")
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    admin.post(f"keys/{paused.pk}/pause/", status=200)
    revoke_key(revoked)

    for state, name in (
        ("paused", "paused"),
        ("expired", "over"),
        ("revoked", "ended"),
        ("active", "running"),
    ):
        assert admin.column("keys/", state=state) == [name]
        key = ApiKey.objects.get(name=name)
        assert key.state_at(timezone.now()) == state
    changes.set_active(ours.two, False)
    assert admin.column("keys/", state="project inactive") == ["running"]
    assert admin.column("keys/", project=ours.two.pk) == ["running"]
    assert admin.column("keys/", search="unni") == ["running"]
    assert admin.column("keys/", search=ours.two.name.upper()) == ["running"]
    assert admin.column("keys/", owner=paused.owner_id, name="over") == ["over"]
    assert admin.error("GET", "keys/", state="dead") == (400, "invalid_value", "state")


def test_the_api_refuses_unknown_endpoints_and_invalid_networks_and_names_the_field(
    member: Api, ours: Tenant
) -> None:
    body = {"name": "x", "project": ours.one.pk}

    for name, wrong, hint in (
        (
            "endpoints",
            "/v1/completions",
            "There are: chat/completions, completions, responses, messages, embeddings, rerank, "
            "score.",
        ),
        ("networks", "10.0.0.1/8", "Networks look like 10.0.0.0/8"),
    ):
        error = member.request("POST", "keys/", body | {name: [wrong]}).json()["error"]
        assert error["param"] == name
        assert error["message"].startswith(f"{name}: ")
        assert wrong in error["message"]
        assert hint in error["message"]
    assert not ApiKey.objects.exists()


def test_an_admin_renames_a_key_that_allows_a_removed_endpoint(
    admin: Api, ours: Tenant, make_key: Keys
) -> None:
    key = make_key(ours.one, allowed_endpoints=["completions"]).key
    ApiKey.objects.filter(pk=key.pk).update(allowed_endpoints=["gone"])

    assert admin.patch(f"keys/{key.pk}/", {"name": "new"})["endpoints"] == ["gone"]
    assert admin.error("PATCH", f"keys/{key.pk}/", {"endpoints": ["gone", "x"]})[2] == "endpoints"


# -- Keys with the scope `manage`


def test_the_error_names_the_key_if_its_owner_may_do_the_action(
    ours: Tenant, make_user: Callable[..., User], make_key: Keys
) -> None:
    boss = make_user("boss", Role.OWNER)
    api = with_key(make_key(ours.one, owner=boss, scopes=["manage"]))
    limit = {"scope": "project", "metric": "tokens", "window": "day", "amount": 9}

    def error_message(project: int) -> str:
        response = api.request("POST", "limits/", limit | {"scope_id": project})
        assert response.status_code == 403
        return str(response.json()["error"]["message"])

    assert error_message(ours.one.pk).startswith("You may do this, but not with a key")
    assert error_message(0).startswith("Your role does not allow this")


def test_a_key_with_the_manage_scope_manages_only_its_project(
    make_user: Callable[..., User], ours: Tenant, theirs: Tenant, make_key: Keys
) -> None:
    boss = make_user("boss", Role.OWNER)
    robot = make_key(ours.one, "robot", owner=boss, scopes=["manage"])
    other = make_key(ours.two, "elsewhere", owner=boss)
    api = with_key(robot)

    assert api.column("keys/") == ["robot"]
    assert api.column("projects/") == ["ours one"]
    assert api.error("GET", f"keys/{other.key.pk}/")[0] == 404
    assert api.error("POST", "keys/", {"name": "x", "project": ours.two.pk})[0] == 400
    created = api.post("keys/", {"name": "child", "project": ours.one.pk})
    assert created["owner_name"] == "boss"
    entry = AuditEntry.objects.latest("number")
    assert entry.actor == f"boss, key {robot.key}"
    assert entry.actor_id == boss.pk


@pytest.mark.parametrize("boss", ["owner", "root"])
def test_a_key_creates_no_people_and_changes_no_email_of_a_person(
    owner: Api, root: Api, ours: Tenant, make_user: Callable[..., User], make_key: Keys, boss: str
) -> None:
    key = make_key(ours.one, owner=User.objects.get(username=boss), scopes=["manage"])
    api, carol = with_key(key), make_user("carol", Role.MEMBER, ours.one)
    new = {"username": "dave", "project": ours.one.pk}

    for body in (new, new | {"password": "correct-horse-7"}):
        assert api.error("POST", "users/", body) == (403, "forbidden", None)
    # The server sends new passwords to this address.
    path, body = f"users/{carol.pk}/", {"email": "boss@acme.example"}
    assert api.error("PATCH", path, body) == (403, "forbidden", None)
    carol.refresh_from_db()
    assert not carol.email
    assert not User.objects.filter(username="dave").exists()

    assert api.patch(path, {"first_name": "Carol"})["first_name"] == "Carol"
    robot = api.post("users/", new | {"is_service": True})
    assert api.patch(f"users/{robot['id']}/", body)["email"] == "boss@acme.example"
    assert owner.patch(path, {"email": "carol@acme.example"})["email"] == "carol@acme.example"


def test_a_key_of_a_superuser_manages_only_its_project(
    root: Api, ours: Tenant, theirs: Tenant, make_key: Keys
) -> None:
    api = with_key(make_key(ours.one, owner=User.objects.get(username="root"), scopes=["manage"]))
    assert api.column("organizations/") == ["ours"]
    assert api.error("POST", "organizations/", {"name": "new"})[0] == 403
    assert api.error("GET", "audit/verify/")[0] == 403


def test_a_key_without_the_manage_scope_manages_nothing(
    make_user: Callable[..., User], ours: Tenant, make_key: Keys
) -> None:
    api = with_key(make_key(ours.one, owner=make_user("boss", Role.OWNER)))

    for path in ("keys/", "limits/", "audit/"):
        assert api.error("GET", path) == (403, "missing_scope", None)
    assert api.error("POST", "keys/", {})[:2] == (403, "missing_scope")
    assert api.get("refusals/")["data"] == []  # The scope `usage` allows this path.


def test_the_api_refuses_revoked_and_malformed_keys(
    member: Api, ours: Tenant, make_key: Keys
) -> None:
    new = make_key(ours.one, scopes=["manage"])
    api = with_key(new)
    assert api.column("keys/") == ["key"]
    revoke_key(new.key)
    # The API does not use the session cookie if the request has a key.
    api.client = member.client
    assert api.error("GET", "keys/") == (401, "invalid_api_key", None)
    for header in ("Bearer", "Bearer nonsense", "Basic YTpi", "Bearer vny_live_" + "a" * 38):
        api.headers = {"Authorization": header}
        response = api.request("GET", "keys/")
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"


def test_a_key_works_only_from_its_networks(ours: Tenant, make_key: Keys) -> None:
    api = with_key(make_key(ours.one, scopes=["manage"], allowed_networks=["10.0.0.0/8"]))

    assert api.error("GET", "keys/") == (403, "address_not_allowed", None)
    api.client = Client(REMOTE_ADDR="10.1.2.3")
    assert api.column("keys/") == ["key"]
    assert ApiKey.objects.get().last_used_ip == "10.1.2.3"


def test_the_last_use_of_a_key_is_stored_at_most_once_a_minute(
    ours: Tenant, make_key: Keys, django_assert_num_queries: Any
) -> None:
    new = make_key(ours.one, scopes=["manage"])
    api = with_key(new)
    api.get("keys/")
    used_at = ApiKey.objects.get().last_used_at
    api.get("keys/")
    assert ApiKey.objects.get().last_used_at == used_at
    assert ApiKey.objects.get().updated_at == new.key.updated_at


def test_a_session_needs_a_csrf_token(ours: Tenant, member: Api) -> None:
    member.client.handler.enforce_csrf_checks = True
    body = {"name": "x", "project": ours.one.pk}

    assert member.error("POST", "keys/", body)[:2] == (403, "forbidden")
    assert member.column("keys/") == []


def test_a_key_needs_no_csrf_token(ours: Tenant, make_key: Keys) -> None:
    api = with_key(make_key(ours.one, scopes=["manage"]))
    api.client = Client(enforce_csrf_checks=True)
    api.post("keys/", {"name": "child", "project": ours.one.pk})


def test_the_api_refuses_clients_without_credentials(db: None) -> None:
    api = Api()
    for path in ("keys/", "organizations/", "users/me/", "refusals/", "audit/verify/"):
        response = api.request("GET", path)
        assert response.status_code == 401, path
        assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.django_db(transaction=True)
def test_the_audit_log_records_the_caller_of_an_asynchronous_server(
    ours: Tenant, make_key: Keys
) -> None:
    new = make_key(ours.one, scopes=["manage"])

    async def rename() -> Any:
        return await AsyncClient().patch(
            f"/api/keys/{new.key.pk}",
            '{"name": "renamed"}',
            content_type="application/json",
            headers={"authorization": f"Bearer {new.secret}"},
        )

    assert async_to_sync(rename)().status_code == 200
    entry = AuditEntry.objects.latest("number")
    assert (entry.action, entry.ip) == ("key.update", "127.0.0.1")
    assert entry.actor.startswith(f"{new.key.owner}, key key")
