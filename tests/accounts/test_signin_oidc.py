"""Sign-in through an OpenID Connect issuer that runs on loopback."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.test import Client
from django.urls import reverse
from oidc_issuer import TestIssuer
from signin_helpers import (
    code_of,
    finish_oidc,
    give_factor,
    oidc_sign_in,
    person,
    signed_in_name,
    start_oidc,
)

from vinery_accounts.models import Membership, Organization, Role, User

pytestmark = pytest.mark.django_db


# -- Accounts


def test_a_new_user_gets_an_account_if_the_settings_allow_it(
    client: Client, issuer: TestIssuer
) -> None:
    response = oidc_sign_in(client, process="login", next="/accounts/sessions/")

    assert response.url == "/accounts/sessions/"
    assert signed_in_name(client) == "ada"
    ada = User.objects.get(username="ada")
    assert (ada.first_name, ada.last_name, ada.email) == ("Ada", "Lovelace", "ada@example.com")
    assert not ada.has_usable_password()
    assert not ada.is_staff
    membership = Membership.objects.get(user=ada)
    assert membership.role == Role.MEMBER


def test_the_next_sign_in_finds_the_same_account(client: Client, issuer: TestIssuer) -> None:
    oidc_sign_in(client)
    client.logout()
    issuer.claims |= {"preferred_username": "countess", "email": "countess@example.com"}

    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.count() == 1


def test_a_new_user_gets_no_account_by_default(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings()

    response = oidc_sign_in(client)

    assert "You have no account here" in response.content.decode()
    assert not User.objects.exists()


def test_a_new_user_with_a_taken_name_gets_another_name(client: Client, issuer: TestIssuer) -> None:
    person("ada", is_superuser=True)

    oidc_sign_in(client)

    assert signed_in_name(client) not in ("", "ada")
    assert not User.objects.get(username=signed_in_name(client)).is_superuser


def test_vinery_asks_for_the_second_factor_after_the_issuer(
    client: Client, issuer: TestIssuer
) -> None:
    ada = person("ada")
    secret = give_factor(ada)
    SocialAccount.objects.create(user=ada, provider="oidc", uid="1234")

    assert oidc_sign_in(client).url.startswith(reverse("mfa_authenticate"))
    assert signed_in_name(client) == ""

    client.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert signed_in_name(client) == "ada"


def test_a_user_of_the_issuer_cannot_set_a_password(client: Client, issuer: TestIssuer) -> None:
    oidc_sign_in(client)

    page = client.get(reverse("account_change_password"), follow=True)
    client.post(reverse("account_set_password"), {"password1": "x" * 20, "password2": "x" * 20})

    assert "Your account has no password" in page.content.decode()
    assert not User.objects.get().has_usable_password()


def test_the_issuer_s_tokens_are_not_kept(client: Client, issuer: TestIssuer) -> None:
    oidc_sign_in(client)

    assert not SocialToken.objects.exists()
    kept = SocialAccount.objects.get().extra_data
    assert kept.keys() == {
        "sub", "iss", "aud", "email", "email_verified", "preferred_username", "name"
    }  # fmt: skip


# -- Rights


def test_groups_decide_about_superusers_and_roles_at_each_sign_in(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    User.objects.create_superuser("root")
    settings.VINERY_OIDC = issuer.settings(
        makes_accounts=True,
        organization="Analytical Engines",
        groups_claim="groups",
        admin_group="operators",
        roles={"leads": "admin", "staff": "member"},
    )
    issuer.userinfo = {"groups": ["operators", "staff", "leads"]}
    oidc_sign_in(client)
    ada = User.objects.get(username="ada")
    assert (ada.is_superuser, ada.is_staff) == (True, True)
    organization = Organization.objects.get(name="Analytical Engines")
    assert Membership.objects.get(user=ada, organization=organization).role == Role.ADMIN

    issuer.userinfo = {"groups": "staff"}
    oidc_sign_in(Client())
    ada.refresh_from_db()
    assert (ada.is_superuser, ada.is_staff) == (False, False)
    assert Membership.objects.get(user=ada, organization=organization).role == Role.MEMBER

    issuer.userinfo = {}
    oidc_sign_in(Client())
    assert not Membership.objects.filter(user=ada).exists()


def test_the_last_superuser_keeps_the_right(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings(groups_claim="groups", admin_group="operators")
    root = person("root", is_superuser=True, is_staff=True)
    SocialAccount.objects.create(user=root, provider="oidc", uid="1234")

    oidc_sign_in(client)

    root.refresh_from_db()
    assert root.is_superuser


# -- Requests


def test_each_request_to_the_issuer_has_a_new_state_nonce_and_challenge(
    client: Client, issuer: TestIssuer
) -> None:
    oidc_sign_in(client)
    oidc_sign_in(Client())

    first, second = issuer.asked
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
    assert set(first["scope"].split()) == {"openid", "profile", "email"}


def test_a_link_cannot_change_the_request_to_the_issuer(client: Client, issuer: TestIssuer) -> None:
    to_issuer = start_oidc(client, scope="everything", auth_params="nonce=mine&prompt=none")

    finish_oidc(client, to_issuer)
    (asked,) = issuer.asked
    assert "everything" not in asked["scope"]
    assert "prompt" not in asked
    assert asked["nonce"] != "mine"


def test_a_link_alone_does_not_sign_in(client: Client, issuer: TestIssuer) -> None:
    response = client.get(reverse("openid_connect_login"))

    assert response.status_code == 200
    assert "You will be redirected to single sign-on" in response.content.decode()


def test_the_callback_is_under_the_public_url(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_PUBLIC_URL = "https://vinery.example"

    to_issuer = start_oidc(client)

    callback = urlencode({"redirect_uri": "https://vinery.example/accounts/oidc/login/callback/"})
    assert callback in to_issuer.url


def test_the_pages_do_not_exist_without_an_issuer(client: Client) -> None:
    assert start_oidc(client).status_code == 404
    assert client.get(reverse("openid_connect_callback")).status_code == 404
    assert client.get(reverse("socialaccount_connections")).status_code == 404
    assert "Log in with" not in client.get(reverse("account_login")).content.decode()


def test_the_sign_in_page_offers_the_issuer(client: Client, issuer: TestIssuer) -> None:
    page = client.get(reverse("account_login")).content.decode()

    assert "Log in with single sign-on" in page
