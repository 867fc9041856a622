"""Members in the console: owners create and invite users, and give and take roles."""

import re
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from api.api_client import Tenant
from django.core import mail
from django.test import Client
from django.utils import timezone
from pages import page, sent, signed_in, text_of

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import ApiKey, Invitation, Membership, Role, User

pytestmark = pytest.mark.django_db

MEMBERS = "/console/members/"
PAGES = ("members", "service-accounts", "projects", "webhooks", "alerts", "audit")


@pytest.fixture
def client(owner: User) -> Client:
    """A client of alice, the owner of ours."""
    return signed_in(owner)


@pytest.fixture
def admin(ours: Tenant) -> Client:
    return signed_in(member_of(ours, "adam", Role.ADMIN).user)


def member_of(tenant: Tenant, name: str, role: str = Role.MEMBER, **more: Any) -> Membership:
    changes.add_user(name, scope=tenant.organization, role=role, **more)
    return Membership.objects.get(user__username=name)


def address_of(membership: Membership) -> str:
    return f"{MEMBERS}{membership.pk}/"


def form_of(name: str, where: Any, **more: Any) -> dict[str, Any]:
    scope = f"{where._meta.model_name}:{where.pk}"
    return {"username": name, "where": scope, "role": "member", **more}


def new_user(client: Client, name: str, where: Any, **more: Any) -> Any:
    return client.post(f"{MEMBERS}new/", form_of(name, where, email="") | more)


def invite(client: Client, name: str, tenant: Tenant) -> str:
    return sent(client, f"{MEMBERS}invite/", form_of(name, tenant.organization))


def link_in(text: str) -> str:
    found = re.search(r'<pre id="secret">http://testserver(.*?)</pre>', text)
    assert found is not None, text
    return found[1]


@table(
    "role, of_project, opened",
    [
        (Role.OWNER, False, PAGES),
        (Role.ADMIN, False, PAGES),
        (Role.MEMBER, False, ("members",)),
        (Role.VIEWER, False, ("members",)),
        (Role.ADMIN, True, ("members", "service-accounts", "projects", "alerts")),
    ],
)
def test_the_menu_has_the_pages_that_the_role_opens_and_no_other_is_answered(
    ours: Tenant, role: str, of_project: bool, opened: tuple[str, ...]
) -> None:
    user = User.objects.create_user(f"{role}-{of_project}")
    changes.set_role(user, ours.one if of_project else ours.organization, role)
    client = signed_in(user)

    menu = page(client, "/console/")

    for name in PAGES:
        assert (f'href="/console/{name}/"' in menu) == (name in opened), name
        expected = 200 if name in opened else 403
        assert client.get(f"/console/{name}/").status_code == expected, name
    if of_project:
        assert "ours two" not in page(client, "/console/projects/")


def test_a_role_is_in_no_organisation_by_mistake(
    owner: User, root: User, ours: Tenant, theirs: Tenant
) -> None:
    """Of several organisations none is chosen beforehand."""
    chosen = '<option value="" selected>Choose one</option>'
    assert "Choose one" not in text_of(signed_in(owner).get(f"{MEMBERS}new/"))
    client = signed_in(root)
    assert chosen in text_of(client.get(f"{MEMBERS}new/"))
    form = form_of("carl", ours.organization, email="") | {"where": ""}
    assert "errorlist" in text_of(client.post(f"{MEMBERS}new/", form))
    assert not User.objects.filter(username="carl").exists()


def test_a_new_user_sets_a_password_by_link(client: Client, ours: Tenant, theirs: Tenant) -> None:
    text = text_of(new_user(client, "bob", ours.organization, email="bob@ours.example"))
    name = f"bob@o{ours.organization.pk}"
    assert f"A link for {name}" in text

    link, visitor = link_in(text), Client()
    form = visitor.get(link, follow=True)
    assert f"Welcome, {name}" in text_of(form)
    password = "a long password of bob"
    visitor.post(form.request["PATH_INFO"], {"password1": password, "password2": password})
    assert Client().login(username=name, password=password)
    assert Membership.objects.get(user__username=name).role == Role.MEMBER
    assert "no longer works" in text_of(Client().get(link, follow=True))

    address = address_of(Membership.objects.get(user__username=name))
    assert "New link to set a password" not in page(client, address)
    assert "has signed in already." in sent(client, f"{address}link/")
    mate = address_of(member_of(ours, "mate"))
    assert "New link to set a password" in page(client, mate)
    link_in(sent(client, f"{mate}link/"))

    # A form with errors keeps the typed values.
    text = text_of(new_user(client, name, ours.organization))
    assert f'value="{name}"' in text
    assert "errorlist" in text
    assert "Select a valid choice." in text_of(new_user(client, "x", theirs.organization))


def test_an_invited_user_answers_and_an_owner_withdraws(
    client: Client, ours: Tenant, bob: User
) -> None:
    def address(does: str) -> str:
        return f"/console/invitations/{Invitation.objects.get().pk}/{does}/"

    assert "No invitation is open." in page(client, "/console/invitations/")
    visitor = signed_in(bob)
    for each in (visitor, client):  # who declines, and who withdraws
        assert "bob is invited" in invite(client, "bob", ours)
        each.post(address("remove"))
        assert not Invitation.objects.exists() and not bob.memberships.exists()

    invite(client, "bob", ours)
    assert "bob" in page(client, "/console/invitations/")
    accept = address("accept")
    assert client.post(accept).status_code == 403
    assert f'action="{accept}"' in page(visitor, "/console/")
    assert "is accepted." in sent(visitor, accept)
    assert bob.memberships.get().role == Role.MEMBER
    assert not Invitation.objects.exists()

    # A member of the organisation gets a role at once.
    text = sent(client, f"{MEMBERS}invite/", form_of("bob", ours.one, role="admin"))
    assert "bob is admin of ours / ours one." in text
    assert Membership.objects.get(project=ours.one).role == Role.ADMIN


def test_members_see_who_is_there_and_no_more(client: Client, ours: Tenant) -> None:
    mate = member_of(ours, "mate", email="mate@ours.example")
    Authenticator.objects.create(user=mate.user, type=Authenticator.Type.TOTP, data={})
    member = signed_in(member_of(ours, "bob").user)

    text = page(member, MEMBERS)

    assert ">mate<" in text
    assert "mate@ours.example" not in text and "Two-factor" not in text
    led = page(client, f"{MEMBERS}?search=MAT")
    assert "mate@ours.example" in led
    assert re.findall('data-name="Two-factor authentication">(.*?)<', led) == ["on"]
    for address in ("new/", "invite/", f"{mate.pk}/"):
        assert member.get(f"{MEMBERS}{address}").status_code == 403


def test_a_service_account_is_apart_from_people_and_gets_a_key(admin: Client, ours: Tenant) -> None:
    address = "/console/service-accounts/"
    text = sent(admin, f"{address}new/", form_of("robot", ours.one))
    name = f"robot@p{ours.one.pk}"

    assert f'value="{name}"' in text  # the form of its first key names the owner
    assert User.objects.get(username=name).is_service
    assert name in page(admin, address)
    assert name not in page(admin, MEMBERS)
    assert "Create a key" in page(admin, address_of(Membership.objects.get(user__username=name)))


def test_the_link_has_a_first_key_and_is_sent_where_the_server_sends_mails(
    client: Client, ours: Tenant, settings: Any
) -> None:
    for is_on in (False, True):
        settings.VINERY_PASSWORD_RESET = is_on
        to = f"{is_on}@ours.example"
        text = text_of(new_user(client, f"bob{is_on}", ours.organization, email=to))
        assert (f"sent to {to}" in text) == is_on
    [sent_mail] = mail.outbox
    assert sent_mail.to == ["True@ours.example"]
    assert link_in(text) in sent_mail.body
    assert '<pre id="key">' not in text

    text = text_of(new_user(client, "carl", ours.one, with_key="on"))
    assert '<pre id="key">vny_' in text
    assert ApiKey.objects.get(owner__username=f"carl@p{ours.one.pk}").project == ours.one


def test_an_administrator_helps_a_user_who_lost_the_password_or_the_phone(root: User) -> None:
    client, address = signed_in(root), "/console/users/"
    text = text_of(client.post(f"{address}new/", {"username": "zoe", "email": ""}))
    assert "A link for zoe" in text
    zoe = User.objects.get(username="zoe")
    zoe.last_login = timezone.now()
    zoe.save()
    Authenticator.objects.create(user=zoe, type=Authenticator.Type.TOTP, data={})
    assert ">zoe<" in page(client, address)

    assert "/second_factor_off/" in page(client, f"{address}{zoe.pk}/")
    sent(client, f"{address}{zoe.pk}/second_factor_off/")
    assert not Authenticator.objects.exists()

    text = text_of(client.post(f"{address}{zoe.pk}/password/"))
    password = re.search(r'<pre id="secret">(.*?)</pre>', text)
    assert password is not None
    assert Client().login(username="zoe", password=password[1])

    assert "zoe is an administrator." in sent(client, f"{address}{zoe.pk}/promote/")
    zoe.refresh_from_db()
    assert signed_in(zoe).get(address).status_code == 200
    assert "zoe is no administrator" in sent(client, f"{address}{zoe.pk}/demote/")
    assert "is the last administrator" in sent(client, f"{address}{root.pk}/demote/")
    assert signed_in(zoe).post(f"{address}{zoe.pk}/promote/").status_code == 403

    assert "zoe is removed." in sent(client, f"{address}{zoe.pk}/remove/")
    assert signed_in(User.objects.create_user("bob")).get(address).status_code == 403
