"""Members in the console: owners create and invite users, and give and take roles."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from api.api_client import Tenant, make_tenant
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone
from pages import page, signed_in, text_of

from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import AuditEntry, Invitation, Membership, Organization, Role, User
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db

MEMBERS = "/console/members/"
PAGES = ("members", "projects", "webhooks", "alerts", "audit")


@pytest.fixture
def ours() -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def theirs() -> Tenant:
    return make_tenant("theirs")


@pytest.fixture
def owner(ours: Tenant, alice: User) -> User:
    changes.set_role(alice, ours.organization, Role.OWNER)
    return alice


def member_of(ours: Tenant, name: str, role: str = Role.MEMBER, **more: Any) -> Membership:
    changes.add_user(name, scope=ours.organization, role=role, **more)
    return Membership.objects.get(user__username=name)


def new_user(client: Client, name: str, where: Any, **more: Any) -> Any:
    scope = f"{where._meta.model_name}:{where.pk}"
    values = {"username": name, "email": "", "where": scope, "role": "member", **more}
    return client.post(f"{MEMBERS}new/", values)


def invite(client: Client, name: str, where: Organization, role: str = "member") -> str:
    values = {"username": name, "where": f"organization:{where.pk}", "role": role}
    return text_of(client.post(f"{MEMBERS}invite/", values, follow=True))


def link_in(text: str) -> str:
    found = re.search(r'<pre id="link">http://testserver(.*?)</pre>', text)
    assert found is not None, text
    return found[1]


# -- Which pages a role opens


@pytest.mark.parametrize(
    ("role", "opened"),
    [
        (Role.OWNER, PAGES),
        (Role.ADMIN, PAGES),
        (Role.MEMBER, ()),
        (Role.VIEWER, ()),
    ],
)
def test_the_menu_has_the_pages_that_the_role_opens_and_no_other_is_answered(
    ours: Tenant, alice: User, role: str, opened: tuple[str, ...]
) -> None:
    changes.set_role(alice, ours.organization, role)
    client = signed_in(alice)

    menu = page(client, "/console/")

    for name in PAGES:
        assert (f'href="/console/{name}/"' in menu) == (name in opened), name
        expected = 200 if name in opened else 403
        assert client.get(f"/console/{name}/").status_code == expected, name


def test_an_admin_of_a_project_opens_the_pages_about_projects_alone(
    ours: Tenant, alice: User
) -> None:
    changes.set_role(alice, ours.one, Role.ADMIN)
    client = signed_in(alice)

    statuses = {name: client.get(f"/console/{name}/").status_code for name in PAGES}

    assert [name for name, status in statuses.items() if status == 200] == [
        "members",
        "projects",
        "alerts",
    ]
    assert "ours two" not in page(client, "/console/projects/")


# -- The list


def test_the_list_has_roles_sign_ins_and_second_factors_of_the_own_organisation_alone(
    owner: User, ours: Tenant, theirs: Tenant
) -> None:
    bob = member_of(ours, "bob", email="bob@ours.example").user
    bob.last_login = timezone.now().replace(year=2026, month=3, day=14)
    bob.save()
    Authenticator.objects.create(user=bob, type=Authenticator.Type.TOTP, data={})
    member_of(theirs, "mallory")

    text = page(signed_in(owner), MEMBERS)

    row = re.search(r"<tr>\s*<th scope=\"row\">bob.*?</tr>", text, re.DOTALL)
    assert row is not None
    assert "bob@ours.example" in row[0]
    assert "2026-03-14" in row[0]
    assert 'data-name="Two-factor authentication">on<' in row[0]
    assert "mallory" not in text
    assert text.count('data-name="Two-factor authentication">off<') == 1


def test_the_list_is_searched_by_name_role_and_project(owner: User, ours: Tenant) -> None:
    member_of(ours, "bob")
    changes.set_role(member_of(ours, "carol").user, ours.one, Role.ADMIN)
    client = signed_in(owner)

    def names(query: str) -> list[str]:
        return re.findall(r'<th scope="row">(\w+)', page(client, f"{MEMBERS}?{query}"))

    assert names("search=BO") == ["bob"]
    assert names("role=owner") == ["alice"]
    assert names(f"project={ours.one.pk}") == ["carol"]
    assert names("search=nothing") == []
    assert names("role=nonsense&project=x") == ["alice", "bob", "carol", "carol"]


# -- New users


def test_an_owner_creates_a_user_who_sets_a_password_with_the_link(
    owner: User, ours: Tenant
) -> None:
    text = text_of(new_user(signed_in(owner), "bob", ours.organization, email="bob@ours.example"))

    link, visitor = link_in(text), Client()
    form = visitor.get(link, follow=True)
    password = "a long password of bob"
    visitor.post(form.request["PATH_INFO"], {"password1": password, "password2": password})
    assert Client().login(username="bob", password=password)
    assert Membership.objects.get(user__username="bob").role == Role.MEMBER
    assert "no longer works" in text_of(Client().get(link, follow=True))


def test_a_new_link_is_given_until_the_user_has_signed_in(owner: User, ours: Tenant) -> None:
    membership, client = member_of(ours, "bob"), signed_in(owner)
    address = f"{MEMBERS}{membership.pk}/"
    assert "New link to set a password" in page(client, address)

    link_in(text_of(client.post(f"{address}link/")))
    membership.user.last_login = timezone.now()
    membership.user.save()

    assert "New link to set a password" not in page(client, address)
    text = text_of(client.post(f"{address}link/", follow=True))
    assert "bob has signed in already." in text
    entries = AuditEntry.objects.filter(action="user.password_link")
    assert list(entries.values_list("actor", "target")) == [("alice", "bob")]


def test_an_admin_creates_service_accounts_and_no_people(ours: Tenant, alice: User) -> None:
    changes.set_role(alice, ours.organization, Role.ADMIN)
    client = signed_in(alice)

    assert new_user(client, "robot", ours.one, is_service="on").status_code == 302
    refused = new_user(client, "bob", ours.one)

    assert refused.status_code == 403
    assert [user.username for user in User.objects.filter(is_service=True)] == ["robot"]
    assert not User.objects.filter(username="bob").exists()


def test_a_form_with_errors_keeps_what_was_typed(owner: User, ours: Tenant, theirs: Tenant) -> None:
    client = signed_in(owner)
    text = text_of(new_user(client, "alice", ours.organization))
    assert 'value="alice"' in text
    assert "errorlist" in text
    assert "Choose an entry of the list." in text_of(new_user(client, "x", theirs.organization))


# -- Invitations


def test_an_invited_user_accepts_in_the_console(owner: User, ours: Tenant, bob: User) -> None:
    text = invite(signed_in(owner), "bob", ours.organization)
    assert "bob is invited" in text
    assert not bob.memberships.exists()

    client = signed_in(bob)
    found = re.search(r'action="(/console/invitations/\d+/accept/)"', page(client, "/console/"))
    assert found is not None
    text = text_of(client.post(found[1], follow=True))

    assert "You are member of ours." in text
    assert bob.memberships.get().role == Role.MEMBER
    assert not Invitation.objects.exists()
    assert "bob" in page(signed_in(owner), MEMBERS)


def test_an_invited_user_may_decline_and_an_owner_may_withdraw(
    owner: User, ours: Tenant, bob: User
) -> None:
    invite(signed_in(owner), "bob", ours.organization)
    declined = Invitation.objects.get()
    signed_in(bob).post(f"/console/invitations/{declined.pk}/decline/")
    assert not Invitation.objects.exists()

    invite(signed_in(owner), "bob", ours.organization)
    address = f"/console/invitations/{Invitation.objects.get().pk}/withdraw/"
    assert "Withdraw the invitation of bob?" in page(signed_in(owner), address)
    signed_in(owner).post(address)

    assert not Invitation.objects.exists()
    assert not bob.memberships.exists()


def test_an_invitation_does_not_reveal_whether_there_is_such_a_user(
    owner: User, ours: Tenant, bob: User
) -> None:
    client = signed_in(owner)
    known, unknown = (invite(client, name, ours.organization) for name in ("bob", "nemo"))

    def message(text: str) -> str:
        found = re.search(r'role="status">(.*?)</p>', text)
        assert found is not None
        return found[1]

    assert message(known).replace("bob", "nemo") == message(unknown)


def test_no_other_user_accepts_an_invitation(
    owner: User, ours: Tenant, bob: User, root: User
) -> None:
    invite(signed_in(owner), "bob", ours.organization)
    address = f"/console/invitations/{Invitation.objects.get().pk}/accept/"

    assert [signed_in(user).post(address).status_code for user in (owner, root)] == [403, 403]
    changes.add_user("carol")
    assert signed_in(User.objects.get(username="carol")).post(address).status_code == 404


def test_an_expired_invitation_is_not_shown_and_cannot_be_accepted(
    owner: User, ours: Tenant, bob: User
) -> None:
    invite(signed_in(owner), "bob", ours.organization)
    invitation = Invitation.objects.get()
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert "invites you" not in page(signed_in(bob), "/console/")
    assert signed_in(bob).post(f"/console/invitations/{invitation.pk}/accept/").status_code == 404


def test_an_invitation_that_was_withdrawn_meanwhile_gives_no_role(ours: Tenant, bob: User) -> None:
    invitation = changes.invite("bob", ours.organization, Role.OWNER)
    changes.remove(Invitation.objects.get())

    with pytest.raises(ValidationError, match="was withdrawn"):
        changes.accept(invitation)

    assert not bob.memberships.exists()


def test_a_member_of_the_organisation_gets_another_role_at_once(owner: User, ours: Tenant) -> None:
    member_of(ours, "bob")
    values = {"username": "bob", "where": f"project:{ours.one.pk}", "role": "admin"}

    text = text_of(signed_in(owner).post(f"{MEMBERS}invite/", values, follow=True))

    assert "bob is admin of ours / ours one." in text
    assert Membership.objects.get(project=ours.one).role == Role.ADMIN


def test_an_admin_invites_no_one(ours: Tenant, alice: User, bob: User) -> None:
    changes.set_role(alice, ours.organization, Role.ADMIN)
    values = {"username": "bob", "where": f"organization:{ours.organization.pk}", "role": "owner"}

    assert signed_in(alice).post(f"{MEMBERS}invite/", values).status_code == 403
    assert not Invitation.objects.exists()


# -- Roles and accounts


def test_an_owner_changes_and_takes_a_role(owner: User, ours: Tenant) -> None:
    membership, client = member_of(ours, "bob"), signed_in(owner)
    address = f"{MEMBERS}{membership.pk}/"

    text = text_of(client.post(address, {"role": "admin"}, follow=True))
    assert "bob is admin of ours." in text
    assert "Remove bob from ours?" in page(client, f"{address}remove/")
    client.post(f"{address}remove/")

    assert not Membership.objects.filter(user__username="bob").exists()
    actions = AuditEntry.objects.filter(target_kind="membership", actor="alice")
    assert list(actions.order_by("number").values_list("action", flat=True)) == [
        "membership.update",
        "membership.delete",
    ]


def test_the_last_owner_can_neither_leave_nor_step_down(owner: User, ours: Tenant) -> None:
    membership, client = Membership.objects.get(user=owner), signed_in(owner)
    address = f"{MEMBERS}{membership.pk}/"

    assert "is the last owner" in text_of(client.post(f"{address}remove/", follow=True))
    assert "is the last owner" in text_of(client.post(address, {"role": "member"}))

    membership.refresh_from_db()
    assert membership.role == Role.OWNER


def test_a_deactivated_member_is_signed_out_and_their_keys_stop(owner: User, ours: Tenant) -> None:
    membership, client = member_of(ours, "bob"), signed_in(owner)
    create_key(owner=membership.user, project=ours.one, name="laptop")
    theirs = signed_in(membership.user)
    address = f"{MEMBERS}{membership.pk}/"

    client.post(f"{address}deactivate/")
    assert theirs.get("/console/").status_code == 302
    assert "deactivated" in page(client, address)
    client.post(f"{address}activate/")

    assert theirs.get("/console/").status_code == 200


def test_an_owner_does_not_deactivate_who_belongs_to_another_organisation_too(
    owner: User, ours: Tenant, theirs: Tenant
) -> None:
    membership = member_of(ours, "bob")
    changes.set_role(membership.user, theirs.organization, Role.MEMBER)
    client, address = signed_in(owner), f"{MEMBERS}{membership.pk}/"

    assert "Deactivate" not in page(client, address)
    for does in ("deactivate", "link"):
        assert client.post(f"{address}{does}/").status_code == 403
    assert client.get(f"{address}deactivate/").status_code == 403


def test_members_of_another_organisation_are_not_found(
    owner: User, ours: Tenant, theirs: Tenant
) -> None:
    address = f"{MEMBERS}{member_of(theirs, 'mallory').pk}/"
    client = signed_in(owner)

    found = [
        client.get(address),
        *(client.post(f"{address}{does}/") for does in ("remove", "link")),
    ]

    assert [each.status_code for each in found] == [404, 404, 404]
