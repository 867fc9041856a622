"""The account that a sign-in through an OpenID Connect issuer opens, by the user's address."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.urls import reverse
from oidc_issuer import TestIssuer
from signin_helpers import (
    PASSWORD,
    confirm_password,
    give_factor,
    oidc_sign_in,
    person,
    sign_in,
    signed_in_name,
)

from vinery_accounts.models import AuditEntry, User
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db


def test_a_verified_address_is_linked_to_its_account_if_the_settings_allow_it(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    person("countess", email="ADA@example.com")

    response = oidc_sign_in(client)
    assert response.status_code == 403
    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""

    settings.VINERY_OIDC = issuer.settings(links_by_email=True)
    oidc_sign_in(client)
    assert signed_in_name(client) == "countess"
    assert not User.objects.get().has_usable_password()


def test_linking_an_account_removes_the_access_of_its_former_user(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    """The first user knows the password, and may have added a second factor or an issuer's
    account.
    """
    maker, countess = Client(), person("countess", email="ada@example.com")
    sign_in(maker, "countess")
    assert signed_in_name(maker) == "countess"
    give_factor(countess)
    SocialAccount.objects.create(user=countess, provider="oidc", uid="maker")
    settings.VINERY_OIDC = issuer.settings(links_by_email=True)

    oidc_sign_in(client)

    assert signed_in_name(client) == "countess"
    assert signed_in_name(maker) == ""
    countess.refresh_from_db()
    assert not countess.has_usable_password()
    assert not Authenticator.objects.exists()
    assert SocialAccount.objects.get().uid == "1234"
    entry = AuditEntry.objects.get(action="user.link")
    assert (entry.actor, entry.target, entry.ip) == ("countess", "countess", "127.0.0.1")
    assert entry.after == {
        "by": "e-mail",
        "forgotten": ["password", "second_factor", "connections"],
    }


def test_credentials_added_after_the_link_are_kept(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    countess = person("countess", email="ada@example.com")
    settings.VINERY_OIDC = issuer.settings(links_by_email=True)
    oidc_sign_in(Client())
    countess.refresh_from_db()
    changes.set_password(countess, PASSWORD)

    oidc_sign_in(client)

    countess.refresh_from_db()
    assert countess.has_usable_password()
    assert AuditEntry.objects.filter(action="user.link").count() == 1


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_an_unverified_address_is_neither_linked_nor_stored(
    client: Client, issuer: TestIssuer, settings: Any, verified: Any
) -> None:
    person("countess", email="ada@example.com")
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)
    issuer.claims |= {"email_verified": verified}

    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.get(username="ada").email == ""


def test_a_user_without_password_and_second_factor_cannot_sign_in_again_by_a_mailed_code(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    """Vinery has no pages for codes by mail, which allauth offers for a verified address."""
    settings.VINERY_OIDC = issuer.settings(makes_accounts=True)
    oidc_sign_in(client)
    EmailAddress.objects.update(verified=True)

    for page in ("account_reauthenticate", "mfa_reauthenticate"):
        assert client.get(reverse(page)).status_code == 403


def test_an_address_of_two_accounts_is_linked_to_neither(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    person("one", email="ada@example.com")
    person("two", email="ada@example.com")
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)

    assert oidc_sign_in(client).status_code == 403
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("links_by_email", [False, True])
@pytest.mark.parametrize("has_account", [False, True])
def test_an_address_that_an_owner_gave_to_another_account_does_not_count(
    client: Client, issuer: TestIssuer, settings: Any, links_by_email: bool, has_account: bool
) -> None:
    """An owner of another organisation could block a person's sign-in, or get them into it."""
    settings.VINERY_OIDC = issuer.settings(links_by_email=links_by_email, makes_accounts=True)
    if has_account:
        oidc_sign_in(Client())
    stub = person("stub", email="Ada@example.com", is_email_confirmed=False)

    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.get(username="ada").email == "ada@example.com"
    assert not SocialAccount.objects.filter(user=stub).exists()
    assert stub.has_usable_password()


def test_an_unconfirmed_address_of_another_account_does_not_block_a_link(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    person("countess", email="ada@example.com")
    person("stub", email="ada@example.com", is_email_confirmed=False)
    settings.VINERY_OIDC = issuer.settings(links_by_email=True)

    oidc_sign_in(client)

    assert signed_in_name(client) == "countess"


def test_a_former_address_of_a_user_is_not_linked(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    """A company may give the address of a former employee to a new one."""
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)
    oidc_sign_in(Client())
    User.objects.update(email="ada@private.example")
    issuer.claims |= {"sub": "5678", "preferred_username": "successor"}

    response = client.get(oidc_sign_in(client).url)

    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""
    assert User.objects.count() == 1


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_service": True}])
def test_an_account_that_may_not_sign_in_is_neither_linked_nor_opened(
    client: Client, issuer: TestIssuer, settings: Any, fields: dict[str, bool]
) -> None:
    robot = person("robot", email="ada@example.com", **fields)
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)
    assert oidc_sign_in(client).status_code == 403

    SocialAccount.objects.create(user=robot, provider="oidc", uid="1234")
    assert oidc_sign_in(client).url == reverse("account_inactive")
    assert signed_in_name(client) == ""


def test_a_user_can_connect_and_disconnect_their_own_account(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings()
    person("countess")
    sign_in(client, "countess")
    confirm_password(client)

    response = oidc_sign_in(client, process="connect")
    assert response.url == reverse("socialaccount_connections")
    connected = SocialAccount.objects.get(user__username="countess")
    assert connected.uid == "1234"

    elsewhere = Client()
    oidc_sign_in(elsewhere)
    assert signed_in_name(elsewhere) == "countess"

    client.post(reverse("socialaccount_connections"), {"account": connected.pk})
    assert not SocialAccount.objects.exists()
