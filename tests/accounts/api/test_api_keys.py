"""Keys over the management API, and keys that manage."""

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

from accounts.keys.lifecycle import NewKey, find_key, revoke_key
from accounts.models import ApiKey, AuditEntry, Role, User
from accounts.services import changes

Keys = Callable[..., NewKey]


def test_a_key_is_made_and_its_secret_reported_once(member: Api, ours: Tenant) -> None:
    made = member.post(
        "keys/",
        {
            "name": "laptop",
            "project": ours.one.pk,
            "models": ["tiny-chat"],
            "networks": ["10.0.0.0/8"],
            "endpoints": ["chat/completions"],
        },
    )

    key = find_key(made["secret"])
    assert key.owner.username == "member"
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat"], ["10.0.0.0/8"])
    assert made["state"] == "active"
    assert made["scopes"] == ["inference", "usage"]
    read = member.get(f"keys/{key.pk}/")
    assert read == {name: value for name, value in made.items() if name != "secret"}
    assert made["secret"] not in str(member.get("keys/"))
    assert key.digest not in str(read)


def test_a_key_is_to_be_rotated_and_shows_when(admin: Api, ours: Tenant) -> None:
    days = {"rotate_every_days": 90, "rotation_grace_days": 7}
    made = admin.post("keys/", {"name": "crawler", "project": ours.one.pk, **days})
    path = f"keys/{made['id']}/"

    key = ApiKey.objects.get(pk=made["id"])
    assert parse_datetime(made["rotation_due_at"]) == key.rotation_due_at
    assert made["is_rotation_overdue"] is False
    assert parse_datetime(made["expires_at"]) == key.expires_at
    # All that was read can be sent back.
    sent = {name: made[name] for name in (*days, "expires_at")}
    assert admin.patch(path, sent)["expires_at"] == made["expires_at"]

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
def test_days_that_cannot_be_meant_are_refused_by_name(
    admin: Api, ours: Tenant, key_in: Keys, values: dict[str, Any], param: str
) -> None:
    whole = {"name": "crawler", "project": ours.one.pk, **values}
    assert admin.refusal("POST", "keys/", whole)[2] == param
    assert admin.refusal("PATCH", f"keys/{key_in(ours.one).key.pk}/", values)[2] == param


def test_a_key_has_a_note(admin: Api, ours: Tenant) -> None:
    new = admin.post("keys/", {"name": "laptop", "project": ours.one.pk, "note": "ask Ann"})
    path = f"keys/{new['id']}/"

    assert new["note"] == "ask Ann"
    assert admin.patch(path, {"note": "ask Bob"})["note"] == "ask Bob"
    assert admin.post(f"{path}rotate/")["note"] == "ask Bob"
    assert admin.refusal("PATCH", path, {"note": "x" * 501}) == (400, "invalid_value", "note")


def test_a_key_lives_through_the_api(admin: Api, ours: Tenant, key_in: Keys) -> None:
    old = key_in(ours.one)
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
    assert admin.refusal("POST", f"{path}resume/") == (409, "conflict", None)
    assert admin.refusal("POST", f"{path}rotate/") == (409, "conflict", None)
    mine = AuditEntry.objects.filter(actor="admin").order_by("number")
    assert [entry.action for entry in mine] == [
        *("key.update", "key.pause", "key.resume", "key.create", "key.rotate", "key.revoke"),
    ]
    assert {entry.ip for entry in mine} == {"127.0.0.1"}


def test_members_manage_their_own_keys_and_look_at_those_of_others(
    member: Api, viewer: Api, ours: Tenant, key_in: Keys
) -> None:
    other = f"keys/{key_in(ours.one).key.pk}/"
    mine = member.post("keys/", {"name": "mine", "project": ours.two.pk})["id"]

    member.patch(f"keys/{mine}/", {"name": "still mine"})
    for act in ("pause/", "revoke/", "rotate/"):
        assert member.refusal("POST", other + act)[:2] == (403, "forbidden")
    assert member.refusal("PATCH", other, {"name": "stolen"})[0] == 403
    assert viewer.refusal("POST", "keys/", {"name": "x", "project": ours.one.pk})[0] == 403
    assert viewer.names("keys/") == ["still mine", "key"]
    assert not ApiKey.objects.exclude(name__in=["still mine", "key"]).exists()


def test_keys_of_others_are_made_by_admins_for_members(
    admin: Api, member: Api, ours: Tenant, person: Callable[..., User], root: Api
) -> None:
    bob, passer_by = person("bob", Role.MEMBER, ours.one), person("passer-by", Role.VIEWER)
    body = {"name": "for bob", "project": ours.one.pk, "owner": bob.pk}

    assert member.refusal("POST", "keys/", body)[0] == 403
    assert admin.post("keys/", body)["owner_name"] == "bob"
    body["owner"] = passer_by.pk
    assert admin.refusal("POST", "keys/", body) == (400, "invalid_value", "owner")
    body["owner"] = User.objects.get(username="root").pk
    assert admin.refusal("POST", "keys/", body) == (400, "invalid_value", "owner")


def test_no_user_gets_hold_of_a_managing_key_of_a_user_with_a_higher_role(
    admin: Api, owner: Api, ours: Tenant, key_in: Keys
) -> None:
    greater = User.objects.get(username="owner")
    body = {
        "name": "x",
        "project": ours.one.pk,
        "owner": greater.pk,
        "scopes": ["inference", "manage"],
    }
    assert admin.refusal("POST", "keys/", body)[0] == 403
    manages = key_in(ours.one, owner=greater, scopes=["manage"]).key
    asks = key_in(ours.one, owner=greater).key
    assert admin.refusal("POST", f"keys/{manages.pk}/rotate/")[0] == 403
    assert admin.refusal("PATCH", f"keys/{asks.pk}/", {"scopes": ["manage"]})[0] == 403
    assert admin.refusal("PATCH", f"keys/{manages.pk}/", {"scopes": ["inference"]})[0] == 403
    assert admin.post(f"keys/{manages.pk}/pause/", status=200)["state"] == "paused"
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
def test_a_key_that_cannot_be_meant_is_refused_by_name(
    member: Api, ours: Tenant, body: dict[str, Any], param: str
) -> None:
    status, _, result = member.refusal(
        "POST", "keys/", {"name": "x", "project": ours.one.pk} | body
    )

    assert (status, result) == (400, param)
    assert not ApiKey.objects.exists()


def test_owner_and_project_of_a_key_stay(admin: Api, ours: Tenant, key_in: Keys) -> None:
    path = f"keys/{key_in(ours.one).key.pk}/"
    for name in ("owner", "project", "secret", "digest", "state"):
        assert admin.refusal("PATCH", path, {name: 1}) == (400, "unknown_parameter", name)


def test_keys_are_filtered(admin: Api, ours: Tenant, key_in: Keys) -> None:
    paused, over, ended = (key_in(ours.one, name).key for name in ("paused", "over", "ended"))
    key_in(ours.two, "running")
    ApiKey.objects.filter(pk=over.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    admin.post(f"keys/{paused.pk}/pause/", status=200)
    revoke_key(ended)

    for state, name in (
        ("paused", "paused"),
        ("expired", "over"),
        ("revoked", "ended"),
        ("active", "running"),
    ):
        assert admin.names("keys/", state=state) == [name]
        key = ApiKey.objects.get(name=name)
        assert key.state_at(timezone.now()) == state
    changes.set_active(ours.two, False)
    assert admin.names("keys/", state="project inactive") == ["running"]
    assert admin.names("keys/", project=ours.two.pk) == ["running"]
    assert admin.names("keys/", search="unni") == ["running"]
    assert admin.names("keys/", search=ours.two.name.upper()) == ["running"]
    assert admin.names("keys/", owner=paused.owner_id, name="over") == ["over"]
    assert admin.refusal("GET", "keys/", state="dead") == (400, "invalid_value", "state")


def test_a_key_for_what_is_not_served_or_no_network_is_refused_by_the_name_of_the_api(
    member: Api, ours: Tenant
) -> None:
    body = {"name": "x", "project": ours.one.pk}

    for name, wrong, result in (
        ("endpoints", "/v1/completions", "There are: chat/completions, completions, responses."),
        ("networks", "10.0.0.1/8", "Networks look like 10.0.0.0/8"),
    ):
        error = member.ask("POST", "keys/", body | {name: [wrong]}).json()["error"]
        assert error["param"] == name
        assert error["message"].startswith(f"{name}: ")
        assert wrong in error["message"]
        assert result in error["message"]
    assert not ApiKey.objects.exists()


def test_a_key_that_allowed_what_is_no_longer_served_can_still_be_renamed(
    admin: Api, ours: Tenant, key_in: Keys
) -> None:
    key = key_in(ours.one, allowed_endpoints=["completions"]).key
    ApiKey.objects.filter(pk=key.pk).update(allowed_endpoints=["gone"])

    assert admin.patch(f"keys/{key.pk}/", {"name": "new"})["endpoints"] == ["gone"]
    assert admin.refusal("PATCH", f"keys/{key.pk}/", {"endpoints": ["gone", "x"]})[2] == "endpoints"


# -- Keys that manage


def test_a_key_that_may_less_than_its_owner_is_reported_so(
    ours: Tenant, person: Callable[..., User], key_in: Keys
) -> None:
    boss = person("boss", Role.OWNER)
    api = with_key(key_in(ours.one, owner=boss, scopes=["manage"]))
    limit = {"scope": "project", "metric": "tokens", "window": "day", "amount": 9}

    def result(project: int) -> str:
        answer = api.ask("POST", "limits/", limit | {"scope_id": project})
        assert answer.status_code == 403
        return str(answer.json()["error"]["message"])

    assert result(ours.one.pk).startswith("You may do this, but not with a key")
    assert result(0).startswith("Your role does not allow this")


def test_a_key_with_the_manage_scope_manages_its_project_alone(
    person: Callable[..., User], ours: Tenant, theirs: Tenant, key_in: Keys
) -> None:
    boss = person("boss", Role.OWNER)
    robot = key_in(ours.one, "robot", owner=boss, scopes=["manage"])
    elsewhere = key_in(ours.two, "elsewhere", owner=boss)
    api = with_key(robot)

    assert api.names("keys/") == ["robot"]
    assert api.names("projects/") == ["ours one"]
    assert api.refusal("GET", f"keys/{elsewhere.key.pk}/")[0] == 404
    assert api.refusal("POST", "keys/", {"name": "x", "project": ours.two.pk})[0] == 400
    made = api.post("keys/", {"name": "child", "project": ours.one.pk})
    assert made["owner_name"] == "boss"
    entry = AuditEntry.objects.latest("number")
    assert entry.actor == f"boss, key {robot.key}"
    assert entry.actor_id == boss.pk


@pytest.mark.parametrize("boss", ["owner", "root"])
def test_a_key_makes_no_people_and_does_not_lead_their_mail_elsewhere(
    owner: Api, root: Api, ours: Tenant, person: Callable[..., User], key_in: Keys, boss: str
) -> None:
    key = key_in(ours.one, owner=User.objects.get(username=boss), scopes=["manage"])
    api, carol = with_key(key), person("carol", Role.MEMBER, ours.one)
    new = {"username": "dave", "project": ours.one.pk}

    for body in (new, new | {"password": "correct-horse-7"}):
        assert api.refusal("POST", "users/", body) == (403, "forbidden", None)
    # New passwords are sent there.
    path, body = f"users/{carol.pk}/", {"email": "boss@acme.example"}
    assert api.refusal("PATCH", path, body) == (403, "forbidden", None)
    carol.refresh_from_db()
    assert not carol.email
    assert not User.objects.filter(username="dave").exists()

    assert api.patch(path, {"first_name": "Carol"})["first_name"] == "Carol"
    robot = api.post("users/", new | {"is_service": True})
    assert api.patch(f"users/{robot['id']}/", body)["email"] == "boss@acme.example"
    assert owner.patch(path, {"email": "carol@acme.example"})["email"] == "carol@acme.example"


def test_the_key_of_a_superuser_is_held_to_its_project_too(
    root: Api, ours: Tenant, theirs: Tenant, key_in: Keys
) -> None:
    api = with_key(key_in(ours.one, owner=User.objects.get(username="root"), scopes=["manage"]))
    assert api.names("organizations/") == ["ours"]
    assert api.refusal("POST", "organizations/", {"name": "new"})[0] == 403
    assert api.refusal("GET", "audit/verify/")[0] == 403


def test_a_key_without_the_scope_manages_nothing(
    person: Callable[..., User], ours: Tenant, key_in: Keys
) -> None:
    api = with_key(key_in(ours.one, owner=person("boss", Role.OWNER)))

    for path in ("keys/", "limits/", "audit/"):
        assert api.refusal("GET", path) == (403, "missing_scope", None)
    assert api.refusal("POST", "keys/", {})[:2] == (403, "missing_scope")
    assert api.get("refusals/")["data"] == []  # it may read usage


def test_a_key_that_opens_no_endpoint_opens_none_here(
    member: Api, ours: Tenant, key_in: Keys
) -> None:
    new = key_in(ours.one, scopes=["manage"])
    api = with_key(new)
    assert api.names("keys/") == ["key"]
    revoke_key(new.key)
    # The session that happens to come along does not help out.
    api.client = member.client
    assert api.refusal("GET", "keys/") == (401, "invalid_api_key", None)
    for header in ("Bearer", "Bearer nonsense", "Basic YTpi", "Bearer vny_live_" + "a" * 38):
        api.headers = {"Authorization": header}
        response = api.ask("GET", "keys/")
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"


def test_a_key_is_used_from_its_networks_alone(ours: Tenant, key_in: Keys) -> None:
    api = with_key(key_in(ours.one, scopes=["manage"], allowed_networks=["10.0.0.0/8"]))

    assert api.refusal("GET", "keys/") == (403, "address_not_allowed", None)
    api.client = Client(REMOTE_ADDR="10.1.2.3")
    assert api.names("keys/") == ["key"]
    assert ApiKey.objects.get().last_used_ip == "10.1.2.3"


def test_a_key_remembers_its_use_once_a_minute(
    ours: Tenant, key_in: Keys, django_assert_num_queries: Any
) -> None:
    new = key_in(ours.one, scopes=["manage"])
    api = with_key(new)
    api.get("keys/")
    used_at = ApiKey.objects.get().last_used_at
    api.get("keys/")
    assert ApiKey.objects.get().last_used_at == used_at
    assert ApiKey.objects.get().updated_at == new.key.updated_at


def test_a_session_needs_the_token_against_forgery(ours: Tenant, member: Api) -> None:
    member.client.handler.enforce_csrf_checks = True
    body = {"name": "x", "project": ours.one.pk}

    assert member.refusal("POST", "keys/", body)[:2] == (403, "forbidden")
    assert member.names("keys/") == []


def test_a_key_needs_no_token_against_forgery(ours: Tenant, key_in: Keys) -> None:
    api = with_key(key_in(ours.one, scopes=["manage"]))
    api.client = Client(enforce_csrf_checks=True)
    api.post("keys/", {"name": "child", "project": ours.one.pk})


def test_strangers_are_asked_to_come_in_properly(db: None) -> None:
    api = Api()
    for path in ("keys/", "organizations/", "users/me/", "refusals/", "audit/verify/"):
        response = api.ask("GET", path)
        assert response.status_code == 401, path
        assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.django_db(transaction=True)
def test_the_log_knows_who_calls_an_asynchronous_server(ours: Tenant, key_in: Keys) -> None:
    new = key_in(ours.one, scopes=["manage"])

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
