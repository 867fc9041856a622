"""Organisations, projects, people and roles over the management API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from api_client import Api, Tenant, with_key

from vinery_accounts.base.errors import KeyRefused
from vinery_accounts.keys.lifecycle import NewKey, create_key, find_key
from vinery_accounts.models import AuditEntry, Membership, ModelWeight, Organization, Role, User
from vinery_accounts.services import changes
from vinery_accounts.services.audit import verify


def test_only_superusers_create_rename_and_deactivate_organizations(
    root: Api, owner: Api, ours: Tenant
) -> None:
    path = f"organizations/{ours.organization.pk}/"
    assert owner.error("POST", "organizations/", {"name": "new"})[0] == 403
    assert owner.error("POST", f"{path}deactivate/")[0] == 403
    assert owner.error("PATCH", path, {"name": "renamed"})[0] == 403
    assert root.patch(path, {"name": "renamed"})["name"] == "renamed"
    assert root.post("organizations/", {"name": "new"})["is_active"] is True
    assert root.post(f"{path}deactivate/", status=200)["is_active"] is False
    assert root.column("organizations/") == ["new", "renamed"]
    assert owner.column("organizations/") == ["renamed"]
    assert root.column("organizations/", is_active="true") == ["new"]
    assert root.error("POST", "organizations/", {"name": "new"}) == (400, "invalid_value", "name")


def test_a_caller_without_the_permission_does_not_learn_which_names_exist(
    owner: Api, ours: Tenant, theirs: Tenant
) -> None:
    own = f"organizations/{ours.organization.pk}/"
    refused = owner.error("PATCH", own, {"name": theirs.organization.name})
    assert refused == owner.error("PATCH", own, {"name": "free"})
    assert refused[0] == 403
    ModelWeight.objects.create(model="tiny-chat", uncached=2, cached=1, output=1)
    for path, known in (
        ("organizations/", {"name": theirs.organization.name}),
        ("model-weights/", {"model": "tiny-chat", "uncached": 1, "cached": 1, "output": 1}),
    ):
        refused = owner.error("POST", path, known)
        assert refused[0] == 403
        [name] = known.keys() & {"name", "model"}
        assert owner.error("POST", path, {**known, name: "free"}) == refused


def test_a_unique_name_is_checked_for_those_who_may_use_it(root: Api, theirs: Tenant) -> None:
    taken = {"name": theirs.organization.name}

    assert root.error("POST", "organizations/", taken) == (400, "invalid_value", "name")


def test_admins_create_projects_in_their_organization(
    admin: Api, ours: Tenant, theirs: Tenant
) -> None:
    body = {"organization": ours.organization.pk, "name": "three"}

    created = admin.post("projects/", body)

    assert created["organization_name"] == "ours"
    assert admin.patch(f"projects/{created['id']}/", {"name": "four"})["name"] == "four"
    assert admin.error("POST", "projects/", body | {"name": "ours one"})[0] == 400
    their_body = body | {"organization": theirs.organization.pk}
    assert admin.error("POST", "projects/", their_body) == (400, "invalid_value", "organization")
    assert admin.error("PATCH", f"projects/{created['id']}/", {"organization": 1})[0] == 400


def test_keys_of_an_inactive_project_or_user_do_not_work(
    owner: Api, ours: Tenant, make_key: Callable[..., NewKey]
) -> None:
    new = make_key(ours.one)
    for path in (f"projects/{ours.one.pk}/", f"users/{new.key.owner_id}/"):
        assert owner.post(f"{path}deactivate/", status=200)["is_active"] is False
        with pytest.raises(KeyRefused):
            find_key(new.secret)
        owner.post(f"{path}activate/", status=200)
        assert find_key(new.secret) == new.key


def test_owners_create_people_and_admins_create_service_accounts(
    owner: Api, admin: Api, ours: Tenant
) -> None:
    scope = {"organization": ours.organization.pk}
    person = {"username": "carol", "password": "correct-horse-7", **scope, "role": "viewer"}

    assert admin.error("POST", "users/", person)[0] == 403
    created = owner.post("users/", person)
    assert "password" not in created
    carol = User.objects.get(pk=created["id"])
    assert carol.check_password("correct-horse-7")
    assert carol.memberships.get().role == Role.VIEWER

    robot = {"username": "robot", "is_service": True, "project": ours.one.pk}
    service = User.objects.get(pk=admin.post("users/", robot)["id"])
    assert not service.has_usable_password()
    assert service.memberships.get().project == ours.one
    assert admin.post(f"users/{service.pk}/deactivate/", status=200)["is_active"] is False
    assert admin.error("POST", f"users/{carol.pk}/deactivate/")[0] == 403


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"username": "owner"}, "username"),
        ({"username": "with space"}, "username"),
        ({"password": "short"}, "password"),
        ({"email": "carol"}, "email"),
        ({"role": "king"}, "role"),
        ({"is_superuser": True}, "is_superuser"),
        ({"organization": None}, "organization"),
        ({"organization": 4711}, "organization"),
    ],
)
def test_the_api_refuses_an_invalid_user_and_names_the_parameter(
    owner: Api, ours: Tenant, values: dict[str, Any], param: str
) -> None:
    body = {"username": "carol", "organization": ours.organization.pk} | values

    assert owner.error("POST", "users/", body)[::2] == (400, param)
    assert not User.objects.filter(username="carol").exists()


def test_only_superusers_create_users_without_an_organization(
    owner: Api, root: Api, ours: Tenant
) -> None:
    assert owner.error("POST", "users/", {"username": "x"})[2] == "organization"
    both = {"organization": ours.organization.pk, "project": ours.one.pk}
    assert owner.error("POST", "users/", {"username": "x", **both})[2] == "project"
    assert root.post("users/", {"username": "x"})["is_superuser"] is False


def test_an_admin_cannot_gain_a_higher_role_by_a_service_account(
    admin: Api, owner: Api, ours: Tenant
) -> None:
    body = {
        "username": "robot",
        "is_service": True,
        "organization": ours.organization.pk,
        "role": "owner",
    }
    assert admin.error("POST", "users/", body)[0] == 403
    owner.post("users/", body)
    robot = User.objects.get(username="robot")
    key = {"name": "x", "owner": robot.pk, "project": ours.one.pk, "scopes": ["manage"]}
    assert admin.error("POST", "keys/", key)[0] == 403


def test_only_owners_grant_change_and_remove_roles(
    owner: Api, admin: Api, ours: Tenant, make_user: Callable[..., User]
) -> None:
    bob = make_user("bob", Role.VIEWER, ours.two)
    body = {"user": bob.pk, "organization": ours.organization.pk, "role": "admin"}

    assert admin.error("POST", "memberships/", body)[0] == 403
    created = owner.post("memberships/", body)
    assert created["project"] is None
    assert owner.error("POST", "memberships/", body)[0] == 400
    path = f"memberships/{created['id']}/"
    assert admin.error("PATCH", path, {"role": "owner"})[0] == 403
    assert owner.patch(path, {"role": "member"})["role"] == "member"
    assert owner.error("PATCH", path, {"project": ours.one.pk})[2] == "project"
    owner.delete(path)
    assert not Membership.objects.filter(pk=created["id"]).exists()
    assert owner.column("memberships/", "username", project=ours.two.pk) == ["bob"]


def test_the_last_owner_cannot_lose_the_role(owner: Api, ours: Tenant) -> None:
    mine = Membership.objects.get(organization=ours.organization, role=Role.OWNER)
    assert owner.error("DELETE", f"memberships/{mine.pk}/")[::2] == (400, "role")
    assert owner.error("PATCH", f"memberships/{mine.pk}/", {"role": "viewer"})[0] == 400


def test_a_membership_needs_a_project_of_its_organization(
    root: Api, ours: Tenant, theirs: Tenant, make_user: Callable[..., User]
) -> None:
    body = {
        "user": make_user("bob", Role.VIEWER).pk,
        "organization": ours.organization.pk,
        "project": theirs.one.pk,
        "role": "member",
    }
    assert root.error("POST", "memberships/", body)[::2] == (400, "project")


def test_a_user_reads_their_own_account_and_roles(member: Api, ours: Tenant) -> None:
    me = member.get("users/me/")
    assert me["username"] == "member"
    assert [(role["organization_name"], role["role"]) for role in me["memberships"]] == [
        ("ours", "member")
    ]


def test_the_list_of_users_has_filters(owner: Api, member: Api, viewer: Api, ours: Tenant) -> None:
    assert owner.column("users/", "username") == ["member", "owner", "viewer"]
    assert owner.column("users/", "username", is_service="true") == []
    assert owner.column("users/", "username", organization=ours.organization.pk, limit=2) == [
        *("member", "owner"),
    ]


def test_filters_reveal_no_roles_that_the_caller_cannot_see(
    owner: Api,
    root: Api,
    ours: Tenant,
    theirs: Tenant,
    make_user: Callable[..., User],
    as_role: Callable[..., Api],
) -> None:
    bob = make_user("bob", Role.VIEWER)
    changes.set_role(bob, theirs.one, Role.VIEWER)
    our_scope = {"organization": ours.organization.pk}

    def usernames(api: Api, **query: int) -> list[str]:
        return api.column("users/", "username", **query)

    for their_scope in ({"organization": theirs.organization.pk}, {"project": theirs.one.pk}):
        assert usernames(owner, **their_scope) == []
        assert usernames(root, **their_scope) == ["bob"]
    assert usernames(owner, **our_scope) == ["bob", "owner"]
    # A user with a role in a project sees the roles in the project, and not those in the
    # whole organisation.
    changes.set_role(bob, ours.one, Role.VIEWER)
    project_admin = as_role(Role.ADMIN, ours.one)
    assert usernames(project_admin) == ["admin", "bob"]
    assert usernames(project_admin, **our_scope, project=ours.one.pk) == ["admin", "bob"]
    assert usernames(project_admin, project=ours.two.pk) == []


def test_owners_delete_empty_projects_and_superusers_delete_empty_organizations(
    root: Api, owner: Api, member: Api, ours: Tenant, make_key: Callable[..., NewKey]
) -> None:
    one, two = (f"projects/{each.pk}/" for each in (ours.one, ours.two))
    scope = f"organizations/{ours.organization.pk}/"
    key = make_key(ours.one).key

    assert member.error("DELETE", two)[0] == 403
    assert owner.error("DELETE", one)[0] == 400
    key.delete()
    owner.delete(one)
    assert owner.error("DELETE", scope)[0] == 403
    assert root.error("DELETE", scope)[0] == 400
    root.delete(two)
    root.delete(scope)

    assert not Organization.objects.filter(pk=ours.organization.pk).exists()
    entries = AuditEntry.objects.filter(target_kind__in=("project", "organization"))
    newest = list(entries.order_by("-number").values_list("action", "actor")[:3])
    assert newest == [
        ("organization.delete", "root"),
        ("project.delete", "root"),
        ("project.delete", "owner"),
    ]


def test_only_superusers_delete_users_and_never_themselves(
    root: Api, owner: Api, ours: Tenant, make_user: Callable[..., User]
) -> None:
    bob = make_user("bob", Role.VIEWER)
    me = User.objects.get(username="root")
    User.objects.create_superuser("other")

    assert owner.error("DELETE", f"users/{bob.pk}/")[0] == 403
    root.delete(f"users/{bob.pk}/")
    assert root.error("GET", f"users/{bob.pk}/")[0] == 404
    assert root.error("DELETE", f"users/{me.pk}/")[0] == 400
    assert User.objects.filter(pk=me.pk).exists()


def test_a_key_cannot_delete_users(root: Api, ours: Tenant, make_user: Callable[..., User]) -> None:
    bob = make_user("bob", Role.VIEWER, ours.one)
    key = create_key(
        owner=User.objects.get(username="root"), project=ours.one, name="x", scopes=["manage"]
    )

    assert with_key(key).error("DELETE", f"users/{bob.pk}/")[0] == 403
    assert User.objects.filter(pk=bob.pk).exists()


def test_the_audit_log_records_each_change(owner: Api, root: Api, ours: Tenant) -> None:
    owner.post("users/", {"username": "carol", "organization": ours.organization.pk})
    mine = AuditEntry.objects.filter(actor="owner").order_by("number")
    assert [entry.action for entry in mine] == ["user.create", "membership.create"]
    assert verify().broken is None
    assert Organization.objects.count() == 1


def test_an_address_that_an_owner_gives_is_not_confirmed(
    owner: Api, root: Api, ours: Tenant
) -> None:
    scope = {"organization": ours.organization.pk}
    body = {"username": "carol", "email": "victim@elsewhere.example", **scope}

    carol = owner.post("users/", body)
    assert carol["is_email_confirmed"] is False
    assert owner.error("PATCH", f"users/{carol['id']}/", {"is_email_confirmed": True})[0] == 400

    path = f"users/{carol['id']}/"
    assert root.patch(path, {"email": "carol@ours.example"})["is_email_confirmed"] is True
    same = {"first_name": "Carol", "email": "carol@ours.example"}
    assert owner.patch(path, same)["is_email_confirmed"] is True
    assert owner.patch(path, {"email": "victim@elsewhere.example"})["is_email_confirmed"] is False
    assert root.post("users/", {**body, "username": "dora"})["is_email_confirmed"] is True
    assert owner.post("users/", {"username": "erin", **scope})["is_email_confirmed"] is True


# -- Lost passwords and second factors, and keys that are deleted


def test_an_administrator_gives_a_user_a_new_password(root: Api, owner: Api, alice: User) -> None:
    path = f"users/{alice.pk}/password/"
    given = "a password that is long"

    assert root.post(path, {"password": given}, status=200) == {"password": given}
    alice.refresh_from_db()
    assert alice.check_password(given)
    drawn = root.post(path, status=200)["password"]
    alice.refresh_from_db()
    assert alice.check_password(drawn)
    assert AuditEntry.objects.filter(action="user.password", target_id=alice.pk).count() == 2

    assert root.error("POST", path, {"password": "short"})[::2] == (400, "password")
    me = User.objects.get(username="owner").pk
    assert owner.error("POST", f"users/{me}/password/")[0] == 403
    assert owner.error("POST", path)[0] == 404


def test_a_service_account_gets_no_password(root: Api, ours: Tenant) -> None:
    robot = changes.add_user("robot", is_service=True, scope=ours.one)

    assert root.error("POST", f"users/{robot.pk}/password/")[0] == 400


def test_an_administrator_removes_a_second_factor(root: Api, alice: User) -> None:
    path = f"users/{alice.pk}/second_factor_off/"
    Authenticator.objects.create(user=alice, type=Authenticator.Type.RECOVERY_CODES, data={})

    assert root.post(path, status=204) is None
    assert not Authenticator.objects.exists()
    assert root.error("POST", path) == (409, "conflict", None)
    assert AuditEntry.objects.filter(action="user.second_factor_off").count() == 1


@pytest.mark.parametrize("does", ["password", "second_factor_off"])
def test_an_admin_key_recovers_users_but_no_administrators(
    root: Api, alice: User, ours: Tenant, does: str
) -> None:
    administrator = User.objects.get(username="root")
    robot = with_key(
        create_key(owner=administrator, project=ours.one, name="robot", scopes=["admin"])
    )
    Authenticator.objects.create(user=alice, type=Authenticator.Type.RECOVERY_CODES, data={})

    assert robot.request("POST", f"users/{alice.pk}/{does}/").status_code in (200, 204)
    assert robot.error("POST", f"users/{administrator.pk}/{does}/")[0] == 403


def test_only_administrators_delete_keys(
    root: Api, owner: Api, ours: Tenant, make_key: Callable[..., NewKey]
) -> None:
    path = f"keys/{make_key(ours.one).key.pk}/"

    assert owner.error("DELETE", path)[0] == 403
    root.delete(path)
    assert root.error("GET", path)[0] == 404
    assert AuditEntry.objects.filter(action="key.delete").count() == 1
    root.delete(f"projects/{ours.one.pk}/")
