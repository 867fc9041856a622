"""Management of keys over the API, and keys with the scope `manage`."""

from datetime import timedelta
from typing import Any

import pytest
from api_client import Api, Tenant, with_key
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.utils import timezone
from row_builders import logged

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import find_key, revoke_key
from vinery_accounts.models import ApiKey, AuditEntry, Role, User

FORBIDDEN = (403, "forbidden", None)


def named(name: str) -> User:
    return User.objects.get(username=name)


def test_a_member_creates_a_key_and_sees_its_secret_once(member: Api, ours: Tenant) -> None:
    body = {"name": "laptop", "project": ours.one.pk, "models": ["tiny-chat"], "note": "ask Ann"}
    rights = {"networks": ["10.0.0.0/8"], "endpoints": ["chat/completions"]}

    created = member.post("keys/", body | rights)

    key = find_key(created["secret"])
    assert key.owner.username == "member"
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat"], ["10.0.0.0/8"])
    assert key.allowed_endpoints == ["chat/completions"]
    assert (created["state"], created["note"]) == ("active", "ask Ann")
    assert created["scopes"] == ["inference", "usage"]
    read = member.get(f"keys/{key.pk}/")
    assert read == {name: value for name, value in created.items() if name != "secret"}
    assert created["secret"] not in str(member.get("keys/"))
    assert key.digest not in str(read)


def test_an_admin_changes_pauses_resumes_rotates_revokes_a_key(admin: Api, ours: Tenant) -> None:
    old = ours.key(ours.one)
    path = f"keys/{old.key.pk}/"

    changed = admin.patch(path, {"name": "renamed", "models": ["small"], "note": "ask Bob"})
    assert (changed["models"], changed["note"]) == (["small"], "ask Bob")
    assert admin.post(f"{path}pause/", status=200)["state"] == "paused"
    assert admin.post(f"{path}resume/", status=200)["state"] == "active"
    new = admin.post(f"{path}rotate/", {"grace_s": 60})
    assert (new["name"], new["models"], new["note"]) == ("renamed", ["small"], "ask Bob")
    assert find_key(new["secret"]).pk == new["id"]
    replaced = admin.get(path)
    assert (replaced["replaced_by"], replaced["state"]) == (new["id"], "active")
    assert admin.post(f"{path}revoke/", status=200)["state"] == "revoked"
    assert admin.error("POST", f"{path}resume/") == (409, "conflict", None)
    assert admin.error("POST", f"{path}rotate/") == (409, "conflict", None)
    actions = ("update", "pause", "resume", "create", "rotate", "revoke")
    assert logged(actor="admin") == [f"key.{each}" for each in actions]
    assert logged(ip="127.0.0.1") == logged(actor="admin")


def test_a_key_keeps_its_owner_and_an_endpoint_that_is_gone(admin: Api, ours: Tenant) -> None:
    key = ours.key(ours.one, allowed_endpoints=["completions"]).key
    path = f"keys/{key.pk}/"
    for name in ("owner", "project", "secret", "digest", "state"):
        assert admin.error("PATCH", path, {name: 1}) == (400, "unknown_parameter", name)
    ApiKey.objects.filter(pk=key.pk).update(allowed_endpoints=["gone"])

    assert admin.patch(path, {"name": "new"})["endpoints"] == ["gone"]
    assert admin.error("PATCH", path, {"endpoints": ["gone", "x"]})[2] == "endpoints"


def test_admins_create_keys_for_members_and_no_managing_key_of_an_owner(
    admin: Api, member: Api, root: Api, ours: Tenant, owner: Api
) -> None:
    bob, viewer = ours.user("bob", Role.MEMBER, ours.one), ours.user("passer-by", Role.VIEWER)
    body = {"name": "for bob", "project": ours.one.pk, "owner": bob.pk}

    assert member.error("POST", "keys/", body)[0] == 403
    assert admin.post("keys/", body)["owner_name"] == "bob"
    for other in (viewer, named("root")):
        error = admin.error("POST", "keys/", body | {"owner": other.pk})
        assert error == (400, "invalid_value", "owner")

    boss, scopes = named("owner"), ["inference", "manage"]
    body = {"name": "x", "project": ours.one.pk, "owner": boss.pk, "scopes": scopes}
    assert admin.error("POST", "keys/", body)[0] == 403
    managing = f"keys/{ours.key(ours.one, owner=boss, scopes=['manage']).key.pk}/"
    plain = f"keys/{ours.key(ours.one, owner=boss).key.pk}/"
    assert admin.error("POST", f"{managing}rotate/")[0] == 403
    assert admin.error("PATCH", plain, {"scopes": ["manage"]})[0] == 403
    assert admin.error("PATCH", managing, {"scopes": ["inference"]})[0] == 403
    assert admin.post(f"{managing}pause/", status=200)["state"] == "paused"
    assert ApiKey.objects.count() == 3
    assert owner.post("keys/", body)["scopes"] == scopes


@table(
    "body, param",
    [
        ({"name": ""}, "name"),
        ({"project": 0}, "project"),
        ({"project": "nine"}, "project"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes.0"),
        ({"networks": ["the office"]}, "networks"),
        ({"models": [""]}, "models.0"),
        ({"models": "tiny-chat"}, "models"),
        ({"note": "x" * 501}, "note"),
        ({"expires_at": "2020-01-01T00:00Z"}, "expires_at"),
        ({"rotate_every_days": 10**30}, "rotate_every_days"),
        ({"rotation_grace_days": 7}, "rotation_grace_days"),
        ({"rotation_due_at": "2999-01-01T00:00Z"}, "rotation_due_at"),
        ({"digest": "0"}, "digest"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_key_is_refused(admin: Api, ours: Tenant, body: dict[str, Any], param: str) -> None:
    error = admin.error("POST", "keys/", {"name": "x", "project": ours.one.pk} | body)
    assert error[::2] == (400, param)
    assert not ApiKey.objects.filter(name="x").exists()

    if body.keys() != {"expires_at"}:  # a stored key may end at once
        path = f"keys/{ours.key(ours.one).key.pk}/"
        assert admin.error("PATCH", path, body)[::2] == (400, param)


@pytest.mark.stores
def test_the_list_of_keys_has_filters(admin: Api, ours: Tenant) -> None:
    paused, expired, revoked = (
        ours.key(ours.one, name).key for name in ("paused", "over", "ended")
    )
    ours.key(ours.two, "running")
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    admin.post(f"keys/{paused.pk}/pause/", status=200)
    revoke_key(revoked)

    states = {"paused": "paused", "expired": "over", "revoked": "ended", "active": "running"}
    for state, name in states.items():
        assert admin.column("keys/", state=state) == [name]
        assert ApiKey.objects.get(name=name).state_at(timezone.now()) == state
    changes.set_active(ours.two, False)
    for query in (
        {"state": "project inactive"},
        {"project": ours.two.pk},
        {"search": "unni"},
        {"search": ours.two.name.upper()},
    ):
        assert admin.column("keys/", **query) == ["running"], query
    assert admin.column("keys/", owner=paused.owner_id, name="over") == ["over"]
    assert admin.error("GET", "keys/", state="dead") == (400, "invalid_value", "state")


def test_a_refusal_says_whether_the_key_or_the_role_is_too_little(ours: Tenant) -> None:
    api = ours.with_key(ours.one, owner=ours.user("boss", Role.OWNER), scopes=["manage"])
    limit = {"scope": "project", "metric": "tokens", "window": "day", "amount": 9}
    for project, text in (
        (ours.one.pk, "You may do this, but not with a key"),
        (0, "Your role does not allow this"),
    ):
        response = api.request("POST", "limits/", limit | {"scope_id": project})
        assert response.status_code == 403
        assert response.json()["error"]["message"].startswith(text)


@table("boss", ["owner", "root"])
def test_a_key_changes_no_email_of_a_person(owner: Api, root: Api, ours: Tenant, boss: str) -> None:
    api = ours.with_key(ours.one, owner=named(boss), scopes=["manage"])
    carol = ours.user(f"carol-{boss}", Role.MEMBER, ours.one)
    new = {"username": f"dave-{boss}", "project": ours.one.pk}

    for body in (new, new | {"password": "correct-horse-7"}):
        assert api.error("POST", "users/", body) == FORBIDDEN
    # The server sends new passwords to this address.
    path, body = f"users/{carol.pk}/", {"email": "boss@acme.example"}
    assert api.error("PATCH", path, body) == FORBIDDEN
    carol.refresh_from_db()
    assert not carol.email
    assert not User.objects.filter(username=new["username"]).exists()

    assert api.patch(path, {"first_name": "Carol"})["first_name"] == "Carol"
    robot = api.post("users/", new | {"is_service": True})
    assert api.patch(f"users/{robot['id']}/", body)["email"] == "boss@acme.example"
    assert owner.patch(path, {"email": "carol@acme.example"})["email"] == "carol@acme.example"


def test_the_api_refuses_revoked_malformed_and_missing_keys(member: Api, ours: Tenant) -> None:
    new = ours.key(ours.one, scopes=["manage"])
    api = with_key(new)
    assert api.column("keys/") == ["key"]
    revoke_key(new.key)
    # The API does not use the session cookie if the request has a key.
    api.client = member.client
    assert api.error("GET", "keys/") == (401, "invalid_api_key", None)
    for header in ("Bearer", "Bearer nonsense", "Basic YTpi", "Bearer vny_live_" + "a" * 38):
        api.headers = {"Authorization": header}
        response = api.request("GET", "keys/")
        assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
    for path in ("keys/", "organizations/", "users/me/", "refusals/", "audit/verify/"):
        assert Api().error("GET", path)[:2] == (401, "invalid_api_key"), path


def test_a_key_works_only_from_its_networks_and_its_last_use_is_stored(ours: Tenant) -> None:
    new = ours.key(ours.one, scopes=["manage"], allowed_networks=["10.0.0.0/8"])
    api = with_key(new)

    assert api.error("GET", "keys/") == (403, "address_not_allowed", None)
    api.client = Client(REMOTE_ADDR="10.1.2.3")
    assert api.column("keys/") == ["key"]
    assert ApiKey.objects.get().last_used_ip == "10.1.2.3"
    used_at = ApiKey.objects.get().last_used_at
    api.get("keys/")
    assert ApiKey.objects.get().last_used_at == used_at  # at most once a minute
    assert ApiKey.objects.get().updated_at == new.key.updated_at


def test_a_session_needs_a_csrf_token_and_a_key_does_not(ours: Tenant, member: Api) -> None:
    body = {"name": "child", "project": ours.one.pk}
    member.client.handler.enforce_csrf_checks = True

    assert member.error("POST", "keys/", body)[:2] == (403, "forbidden")
    assert member.column("keys/") == []
    api = ours.with_key(ours.one, scopes=["manage"])
    api.client = Client(enforce_csrf_checks=True)
    api.post("keys/", body)


@pytest.mark.django_db(transaction=True)
def test_the_audit_log_records_the_caller_of_an_asynchronous_server(ours: Tenant) -> None:
    new = ours.key(ours.one, scopes=["manage"])

    sent: Any = {"headers": {"authorization": f"Bearer {new.secret}"}}
    sent |= {"data": '{"name": "renamed"}', "content_type": "application/json"}
    answer = async_to_sync(AsyncClient().patch)(f"/api/keys/{new.key.pk}", **sent)

    assert answer.status_code == 200
    entry = AuditEntry.objects.latest("number")
    assert (entry.action, entry.ip) == ("key.update", "127.0.0.1")
    assert entry.actor.startswith(f"{new.key.owner}, key key")
