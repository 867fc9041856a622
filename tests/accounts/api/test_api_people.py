"""Organisations, projects, people and roles over the management API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_client import Api, Tenant, with_key

from accounts.base.errors import KeyRefused
from accounts.keys.lifecycle import NewKey, create_key, find_key
from accounts.models import AuditEntry, Membership, Organization, Role, User
from accounts.services import changes
from accounts.services.audit import verify


def test_only_administrators_make_and_switch_organisations(
    root: Api, owner: Api, ours: Tenant
) -> None:
    path = f"organizations/{ours.organization.pk}/"
    assert owner.refusal("POST", "organizations/", {"name": "new"})[0] == 403
    assert owner.refusal("POST", f"{path}deactivate/")[0] == 403
    assert owner.patch(path, {"name": "renamed"})["name"] == "renamed"
    assert root.post("organizations/", {"name": "new"})["is_active"] is True
    assert root.post(f"{path}deactivate/", status=200)["is_active"] is False
    assert root.names("organizations/") == ["new", "renamed"]
    assert owner.names("organizations/") == ["renamed"]
    assert root.names("organizations/", is_active="true") == ["new"]
    assert root.refusal("POST", "organizations/", {"name": "new"}) == (400, "invalid_value", "name")


def test_admins_make_projects_where_they_lead(admin: Api, ours: Tenant, theirs: Tenant) -> None:
    here = {"organization": ours.organization.pk, "name": "three"}

    made = admin.post("projects/", here)

    assert made["organization_name"] == "ours"
    assert admin.patch(f"projects/{made['id']}/", {"name": "four"})["name"] == "four"
    assert admin.refusal("POST", "projects/", here | {"name": "ours one"})[0] == 400
    elsewhere = here | {"organization": theirs.organization.pk}
    assert admin.refusal("POST", "projects/", elsewhere) == (400, "invalid_value", "organization")
    assert admin.refusal("PATCH", f"projects/{made['id']}/", {"organization": 1})[0] == 400


def test_keys_of_a_project_or_a_user_that_is_deactivated_stop(
    owner: Api, ours: Tenant, key_in: Callable[..., NewKey]
) -> None:
    new = key_in(ours.one)
    for path in (f"projects/{ours.one.pk}/", f"users/{new.key.owner_id}/"):
        assert owner.post(f"{path}deactivate/", status=200)["is_active"] is False
        with pytest.raises(KeyRefused):
            find_key(new.secret)
        owner.post(f"{path}activate/", status=200)
        assert find_key(new.secret) == new.key


def test_owners_make_people_and_admins_service_accounts(
    owner: Api, admin: Api, ours: Tenant
) -> None:
    here = {"organization": ours.organization.pk}
    person = {"username": "carol", "password": "correct-horse-7", **here, "role": "viewer"}

    assert admin.refusal("POST", "users/", person)[0] == 403
    made = owner.post("users/", person)
    assert "password" not in made
    carol = User.objects.get(pk=made["id"])
    assert carol.check_password("correct-horse-7")
    assert carol.memberships.get().role == Role.VIEWER

    robot = {"username": "robot", "is_service": True, "project": ours.one.pk}
    service = User.objects.get(pk=admin.post("users/", robot)["id"])
    assert not service.has_usable_password()
    assert service.memberships.get().project == ours.one
    assert admin.post(f"users/{service.pk}/deactivate/", status=200)["is_active"] is False
    assert admin.refusal("POST", f"users/{carol.pk}/deactivate/")[0] == 403


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"username": "owner"}, "username"),
        ({"username": "with space"}, "username"),
        ({"password": "short"}, "password"),
        ({"email": "nobody"}, "email"),
        ({"role": "king"}, "role"),
        ({"is_superuser": True}, "is_superuser"),
        ({"organization": None}, "organization"),
        ({"organization": 4711}, "organization"),
    ],
)
def test_a_user_that_cannot_be_is_refused_by_name(
    owner: Api, ours: Tenant, values: dict[str, Any], param: str
) -> None:
    body = {"username": "carol", "organization": ours.organization.pk} | values

    assert owner.refusal("POST", "users/", body)[::2] == (400, param)
    assert not User.objects.filter(username="carol").exists()


def test_a_user_belongs_somewhere_unless_an_administrator_makes_them(
    owner: Api, root: Api, ours: Tenant
) -> None:
    assert owner.refusal("POST", "users/", {"username": "x"})[2] == "organization"
    both = {"organization": ours.organization.pk, "project": ours.one.pk}
    assert owner.refusal("POST", "users/", {"username": "x", **both})[2] == "project"
    assert root.post("users/", {"username": "x"})["is_superuser"] is False


def test_a_service_account_is_no_way_to_a_greater_role(
    admin: Api, owner: Api, ours: Tenant
) -> None:
    body = {
        "username": "robot",
        "is_service": True,
        "organization": ours.organization.pk,
        "role": "owner",
    }
    assert admin.refusal("POST", "users/", body)[0] == 403
    owner.post("users/", body)
    robot = User.objects.get(username="robot")
    key = {"name": "x", "owner": robot.pk, "project": ours.one.pk, "scopes": ["manage"]}
    assert admin.refusal("POST", "keys/", key)[0] == 403


def test_owners_decide_about_roles(
    owner: Api, admin: Api, ours: Tenant, person: Callable[..., User]
) -> None:
    bob = person("bob", Role.VIEWER, ours.two)
    body = {"user": bob.pk, "organization": ours.organization.pk, "role": "admin"}

    assert admin.refusal("POST", "memberships/", body)[0] == 403
    made = owner.post("memberships/", body)
    assert made["project"] is None
    assert owner.refusal("POST", "memberships/", body)[0] == 400
    path = f"memberships/{made['id']}/"
    assert admin.refusal("PATCH", path, {"role": "owner"})[0] == 403
    assert owner.patch(path, {"role": "member"})["role"] == "member"
    assert owner.refusal("PATCH", path, {"project": ours.one.pk})[2] == "project"
    owner.delete(path)
    assert not Membership.objects.filter(pk=made["id"]).exists()
    assert owner.names("memberships/", "username", project=ours.two.pk) == ["bob"]


def test_the_last_owner_stays(owner: Api, ours: Tenant) -> None:
    mine = Membership.objects.get(organization=ours.organization, role=Role.OWNER)
    assert owner.refusal("DELETE", f"memberships/{mine.pk}/")[::2] == (400, "role")
    assert owner.refusal("PATCH", f"memberships/{mine.pk}/", {"role": "viewer"})[0] == 400


def test_a_project_of_another_organisation_takes_no_members_of_ours(
    root: Api, ours: Tenant, theirs: Tenant, person: Callable[..., User]
) -> None:
    body = {
        "user": person("bob", Role.VIEWER).pk,
        "organization": ours.organization.pk,
        "project": theirs.one.pk,
        "role": "member",
    }
    assert root.refusal("POST", "memberships/", body)[::2] == (400, "project")


def test_one_sees_oneself_with_all_roles(member: Api, ours: Tenant) -> None:
    me = member.get("users/me/")
    assert me["username"] == "member"
    assert [(role["organization_name"], role["role"]) for role in me["memberships"]] == [
        ("ours", "member")
    ]


def test_people_are_found(owner: Api, member: Api, viewer: Api, ours: Tenant) -> None:
    assert owner.names("users/", "username") == ["member", "owner", "viewer"]
    assert owner.names("users/", "username", is_service="true") == []
    assert owner.names("users/", "username", organization=ours.organization.pk, limit=2) == [
        *("member", "owner"),
    ]


def test_roles_elsewhere_are_not_found_out_by_asking_who_has_them(
    owner: Api,
    root: Api,
    ours: Tenant,
    theirs: Tenant,
    person: Callable[..., User],
    as_role: Callable[..., Api],
) -> None:
    bob = person("bob", Role.VIEWER)
    changes.set_role(bob, theirs.one, Role.VIEWER)
    here = {"organization": ours.organization.pk}

    def found(api: Api, **query: int) -> list[str]:
        return api.names("users/", "username", **query)

    for elsewhere in ({"organization": theirs.organization.pk}, {"project": theirs.one.pk}):
        assert found(owner, **elsewhere) == []
        assert found(root, **elsewhere) == ["bob"]
    assert found(owner, **here) == ["bob", "owner"]
    # Who has a role in a project sees the roles in it, and not who has one in the whole.
    changes.set_role(bob, ours.one, Role.VIEWER)
    single = as_role(Role.ADMIN, ours.one)
    assert found(single) == ["admin", "bob"]
    assert found(single, **here, project=ours.one.pk) == ["admin", "bob"]
    assert found(single, project=ours.two.pk) == []


def test_a_scope_is_removed_from_the_inside_out_by_a_user_who_may(
    root: Api, owner: Api, member: Api, ours: Tenant, key_in: Callable[..., NewKey]
) -> None:
    one, two = (f"projects/{each.pk}/" for each in (ours.one, ours.two))
    scope = f"organizations/{ours.organization.pk}/"
    key = key_in(ours.one).key

    assert member.refusal("DELETE", two)[0] == 403
    assert owner.refusal("DELETE", one)[0] == 400
    key.delete()
    owner.delete(one)
    assert owner.refusal("DELETE", scope)[0] == 403
    assert root.refusal("DELETE", scope)[0] == 400
    root.delete(two)
    root.delete(scope)

    assert not Organization.objects.filter(pk=ours.organization.pk).exists()
    acts = AuditEntry.objects.filter(target_kind__in=("project", "organization"))
    newest = list(acts.order_by("-number").values_list("action", "actor")[:3])
    assert newest == [
        ("organization.delete", "root"),
        ("project.delete", "root"),
        ("project.delete", "owner"),
    ]


def test_only_administrators_remove_people_and_not_themselves(
    root: Api, owner: Api, ours: Tenant, person: Callable[..., User]
) -> None:
    bob = person("bob", Role.VIEWER)
    me = User.objects.get(username="root")
    User.objects.create_superuser("other")

    assert owner.refusal("DELETE", f"users/{bob.pk}/")[0] == 403
    root.delete(f"users/{bob.pk}/")
    assert root.refusal("GET", f"users/{bob.pk}/")[0] == 404
    assert root.refusal("DELETE", f"users/{me.pk}/")[0] == 400
    assert User.objects.filter(pk=me.pk).exists()


def test_no_key_removes_people(root: Api, ours: Tenant, person: Callable[..., User]) -> None:
    bob = person("bob", Role.VIEWER, ours.one)
    key = create_key(
        owner=User.objects.get(username="root"), project=ours.one, name="x", scopes=["manage"]
    )

    assert with_key(key).refusal("DELETE", f"users/{bob.pk}/")[0] == 403
    assert User.objects.filter(pk=bob.pk).exists()


def test_everything_is_in_the_log(owner: Api, root: Api, ours: Tenant) -> None:
    owner.post("users/", {"username": "carol", "organization": ours.organization.pk})
    mine = AuditEntry.objects.filter(actor="owner").order_by("number")
    assert [entry.action for entry in mine] == ["user.create", "membership.create"]
    assert verify().broken is None
    assert Organization.objects.count() == 1
