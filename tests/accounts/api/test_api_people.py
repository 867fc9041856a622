"""Organisations, projects, people and roles over the management API."""

import re
from typing import Any

from allauth.mfa.models import Authenticator
from api_client import Api, Tenant, as_user, with_key
from django.db import transaction
from row_builders import logged

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.audit import verify
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import AuditEntry, Membership, ModelWeight, Role, User


def of(tenant: Tenant) -> dict[str, int]:
    return {"organization": tenant.organization.pk}


def key_of_root(ours: Tenant, scope: str) -> Api:
    """A client with a key of the administrator."""
    owner = User.objects.get(username="root")
    return with_key(create_key(owner=owner, project=ours.one, name="robot", scopes=[scope]))


def test_a_refusal_reveals_no_names_that_exist(owner: Api, ours: Tenant, theirs: Tenant) -> None:
    ModelWeight.objects.create(model="tiny-chat", uncached=2, cached=1, output=1)
    for method, path, known in (
        ("PATCH", f"organizations/{ours.organization.pk}/", {"name": theirs.organization.name}),
        ("POST", "organizations/", {"name": theirs.organization.name}),
        ("POST", "model-weights/", {"model": "tiny-chat", "uncached": 1, "output": 1}),
    ):
        refused = owner.error(method, path, known)
        assert refused[0] == 403
        [name] = known.keys() & {"name", "model"}
        assert owner.error(method, path, {**known, name: "free"}) == refused


def test_admins_create_projects_of_their_own(admin: Api, ours: Tenant, theirs: Tenant) -> None:
    body = {**of(ours), "name": "three"}

    created = admin.post("projects/", body)

    path = f"projects/{created['id']}/"
    assert created["organization_name"] == "ours"
    assert admin.patch(path, {"name": "four"})["name"] == "four"
    assert admin.error("POST", "projects/", body | {"name": "ours one"})[0] == 400
    error = admin.error("POST", "projects/", body | of(theirs))
    assert error == (400, "invalid_value", "organization")
    assert admin.error("PATCH", path, {"organization": 1})[0] == 400


def test_only_owners_create_people(owner: Api, admin: Api, ours: Tenant, root: Api) -> None:
    person = {"username": "carol", "password": "correct-horse-7", **of(ours), "role": "viewer"}
    assert admin.error("POST", "users/", person)[0] == 403
    created = owner.post("users/", person)
    assert "password" not in created
    carol = User.objects.get(pk=created["id"])
    assert carol.check_password("correct-horse-7")
    assert carol.memberships.get().role == Role.VIEWER
    assert logged(actor="owner") == ["user.create", "membership.create"]
    assert verify().broken is None

    robot = {"username": "robot", "is_service": True, "project": ours.one.pk}
    service = User.objects.get(pk=admin.post("users/", robot)["id"])
    assert not service.has_usable_password()
    assert service.memberships.get().project == ours.one
    assert admin.post(f"users/{service.pk}/deactivate/", status=200)["is_active"] is False
    assert admin.error("POST", f"users/{carol.pk}/deactivate/")[0] == 403

    assert owner.error("POST", "users/", {"username": "x"})[2] == "organization"
    both = {"username": "x", **of(ours), "project": ours.one.pk}
    assert owner.error("POST", "users/", both)[2] == "project"
    assert root.post("users/", {"username": "x"})["is_superuser"] is False

    body = {"username": "droid", "is_service": True, **of(ours), "role": "owner"}
    assert admin.error("POST", "users/", body)[0] == 403
    robot = owner.post("users/", body)["id"]
    key = {"name": "x", "owner": robot, "project": ours.one.pk, "scopes": ["manage"]}
    assert admin.error("POST", "keys/", key)[0] == 403


@table(
    "values, param",
    [
        ({"password": "short"}, "password"),
        ({"email": "carol"}, "email"),
        ({"is_superuser": True}, "is_superuser"),
        ({"organization": 4711}, "organization"),
    ],
)
def test_the_api_refuses_an_invalid_user_and_names_the_parameter(
    owner: Api, ours: Tenant, values: dict[str, Any], param: str
) -> None:
    body = {"username": "carol", **of(ours)} | values

    assert owner.error("POST", "users/", body)[::2] == (400, param)
    assert not User.objects.filter(username="carol").exists()


def test_creators_of_users_do_not_learn_which_names_others_have(
    ours: Tenant, theirs: Tenant
) -> None:
    def learnt(api: Api, name: str, *, is_service: bool) -> str:
        """All that the sender sees when the user is created, and created again."""
        body = {"username": name, "project": ours.one.pk, "is_service": is_service}
        seen: list[Any] = []
        with transaction.atomic():
            for _ in range(2):
                with transaction.atomic():
                    answer = api.request("POST", "users/", body)
                seen += [answer.status_code, answer.content, sorted(answer.items())]
            seen += [api.get(path) for path in ("users/", "memberships/", "invitations/")]
            transaction.set_rollback(True)
        text = str(seen).replace(name, "NAME")
        return re.sub(r"req_\w+|[\d-]+T[\d:.]+Z|\d+", "N", text)

    theirs.user("victim", Role.MEMBER)
    boss = ours.user("boss", Role.OWNER)
    for api, is_service in (
        (as_user(boss), False),
        (as_user(boss), True),
        (ours.as_role(Role.OWNER, ours.one), False),
        (ours.as_role(Role.ADMIN), True),
        (ours.with_key(ours.one, owner=boss, scopes=["manage"]), True),
    ):
        text = learnt(api, "victim", is_service=is_service)
        assert text == learnt(api, "vacant", is_service=is_service)
        assert '"username":"NAME@pN"' in text


def test_a_user_reads_their_own_account_and_roles(member: Api) -> None:
    me = member.get("users/me/")
    assert me["username"] == "member"
    (role,) = me["memberships"]
    assert (role["organization_name"], role["role"]) == ("ours", "member")


def test_filters_show_no_hidden_roles(owner: Api, root: Api, ours: Tenant, theirs: Tenant) -> None:
    bob = ours.user("bob", Role.VIEWER)
    for scope in (theirs.one, ours.one):
        changes.set_role(bob, scope, Role.VIEWER)
    project_admin = ours.as_role(Role.ADMIN, ours.one)

    for api, query, usernames in (
        (owner, of(theirs), []),
        (root, of(theirs), ["bob"]),
        (root, {"project": theirs.one.pk}, ["bob"]),
        (owner, {"project": theirs.one.pk}, []),
        (owner, of(ours) | {"limit": 2}, ["admin", "bob"]),
        (owner, {"is_service": "true"}, []),
        # The list shows roles in the project, and no roles in the whole organisation.
        (project_admin, {}, ["admin", "bob"]),
        (project_admin, of(ours) | {"project": ours.one.pk}, ["admin", "bob"]),
        (project_admin, {"project": ours.two.pk}, []),
    ):
        assert api.column("users/", "username", **query) == usernames, query


def test_an_address_given_by_an_owner_is_unconfirmed(owner: Api, root: Api, ours: Tenant) -> None:
    elsewhere = {"email": "victim@elsewhere.example"}
    body = {"username": "carol", **elsewhere, **of(ours)}

    carol = owner.post("users/", body)
    path = f"users/{carol['id']}/"
    assert carol["is_email_confirmed"] is False
    assert owner.error("PATCH", path, {"is_email_confirmed": True})[0] == 400

    assert root.patch(path, {"email": "carol@ours.example"})["is_email_confirmed"] is True
    same = {"first_name": "Carol", "email": "carol@ours.example"}
    assert owner.patch(path, same)["is_email_confirmed"] is True
    assert owner.patch(path, elsewhere)["is_email_confirmed"] is False
    assert root.post("users/", {**body, "username": "dora"})["is_email_confirmed"] is True
    assert owner.post("users/", {"username": "erin", **of(ours)})["is_email_confirmed"] is True


def test_only_owners_grant_change_and_remove_roles(
    owner: Api, admin: Api, ours: Tenant, root: Api, theirs: Tenant
) -> None:
    bob = ours.user("bob", Role.VIEWER, ours.two)
    body = {"user": bob.pk, **of(ours), "role": "admin"}

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

    mine = Membership.objects.get(organization=ours.organization, role=Role.OWNER)
    path = f"memberships/{mine.pk}/"  # of the last owner
    assert owner.error("DELETE", path)[::2] == (400, "role")
    assert owner.error("PATCH", path, {"role": "viewer"})[0] == 400

    body = {"user": bob.pk, **of(ours), "project": theirs.one.pk, "role": "member"}
    assert root.error("POST", "memberships/", body)[::2] == (400, "project")


def test_administrators_recover_accounts(root: Api, owner: Api, ours: Tenant, alice: User) -> None:
    path = f"users/{alice.pk}/password/"
    given = "a password that is long"
    assert root.post(path, {"password": given}, status=200) == {"password": given}
    alice.refresh_from_db()
    assert alice.check_password(given)
    drawn = root.post(path, status=200)["password"]
    alice.refresh_from_db()
    assert alice.check_password(drawn)
    assert AuditEntry.objects.filter(action="user.password", target_id=alice.pk).count() == 2

    me = User.objects.get(username="owner").pk
    assert owner.error("POST", f"users/{me}/password/")[0] == 403
    robot = changes.add_user("robot", is_service=True, scope=ours.one)
    assert root.error("POST", f"users/{robot.pk}/password/")[0] == 400

    path = f"users/{alice.pk}/second_factor_off/"
    factor = {"user": alice, "type": Authenticator.Type.RECOVERY_CODES, "data": {}}
    Authenticator.objects.create(**factor)

    assert root.post(path, status=204) is None
    assert not Authenticator.objects.exists()
    assert root.error("POST", path) == (409, "conflict", None)
    assert AuditEntry.objects.filter(action="user.second_factor_off").count() == 1

    api, chief = key_of_root(ours, "admin"), User.objects.get(username="root")
    Authenticator.objects.create(**factor)

    for does, status in (("password", 200), ("second_factor_off", 204)):
        api.post(f"users/{alice.pk}/{does}/", status=status)
        assert api.error("POST", f"users/{chief.pk}/{does}/")[0] == 403
