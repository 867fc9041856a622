"""Sign-in through an OpenID Connect issuer on loopback: rights, accounts, and wrong answers of the
issuer."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.test import Client
from django.urls import reverse
from oidc_issuer import CLIENT_ID, TestIssuer, new_key
from signin_helpers import (
    PASSWORD,
    code_of,
    confirm_password,
    give_factor,
    is_oidc_refused,
    oidc_sign_in,
    person,
    sign_in,
    signed_in_name,
    start_oidc,
    text_of,
)

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry, Membership, Organization, Role, User

pytestmark = pytest.mark.django_db


def test_a_new_user_gets_an_account_for_all_sign_ins(client: Client, issuer: TestIssuer) -> None:
    response = oidc_sign_in(client, process="login", next="/accounts/sessions/")

    assert response.url == "/accounts/sessions/"
    assert signed_in_name(client) == "ada"
    ada = User.objects.get(username="ada")
    assert (ada.first_name, ada.last_name, ada.email) == ("Ada", "Lovelace", "ada@example.com")
    assert not ada.has_usable_password()
    assert not ada.is_staff
    membership = Membership.objects.get(user=ada)
    assert membership.role == Role.MEMBER

    issuer.claims |= {"preferred_username": "countess", "email": "countess@example.com"}
    elsewhere = Client()
    oidc_sign_in(elsewhere)
    assert signed_in_name(elsewhere) == "ada"
    assert User.objects.count() == 1


def test_a_new_user_gets_no_account_and_no_taken_name(client: Client, issuer: TestIssuer) -> None:
    issuer.allow()
    response = oidc_sign_in(client)
    assert "You have no account here" in response.content.decode()
    assert not User.objects.exists()

    issuer.allow(makes_accounts=True)
    person("ada", is_superuser=True)
    oidc_sign_in(client)
    assert signed_in_name(client) not in ("", "ada")
    assert not User.objects.get(username=signed_in_name(client)).is_superuser


def test_the_second_factor_is_asked_after_the_issuer(client: Client, issuer: TestIssuer) -> None:
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
    assert "Your account has no password" in text_of(page)
    assert not User.objects.get().has_usable_password()
    assert not SocialToken.objects.exists()
    known = {"sub", "iss", "aud", "email", "email_verified", "preferred_username", "name"}
    assert SocialAccount.objects.get().extra_data.keys() == known

    # Vinery has no pages for codes by mail, which allauth offers for a verified address.
    EmailAddress.objects.update(verified=True)
    for page in ("account_reauthenticate", "mfa_reauthenticate"):
        assert client.get(reverse(page)).status_code == 403


def test_groups_decide_about_rights_at_each_sign_in(client: Client, issuer: TestIssuer) -> None:
    User.objects.create_superuser("root")
    issuer.allow(
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


def test_the_last_superuser_keeps_the_right(client: Client, issuer: TestIssuer) -> None:
    issuer.allow(groups_claim="groups", admin_group="operators")
    root = person("root", is_superuser=True, is_staff=True)
    SocialAccount.objects.create(user=root, provider="oidc", uid="1234")

    oidc_sign_in(client)

    root.refresh_from_db()
    assert root.is_superuser


def test_each_request_has_a_state_which_no_link_sets(client: Client, issuer: TestIssuer) -> None:
    oidc_sign_in(client)
    link = {"scope": "everything", "auth_params": "nonce=mine&prompt=none"}
    oidc_sign_in(Client(), **link)

    first, second = issuer.asked
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
    assert set(first["scope"].split()) == {"openid", "profile", "email"}
    assert "everything" not in second["scope"]
    assert "prompt" not in second
    assert second["nonce"] != "mine"


def test_a_link_alone_does_not_sign_in_and_the_callback_has_the_public_url(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    assert "Log in with single sign-on" in text_of(client.get(reverse("account_login")))
    response = client.get(reverse("openid_connect_login"))
    assert response.status_code == 200
    assert "You will be redirected to single sign-on" in text_of(response)

    settings.VINERY_PUBLIC_URL = "https://vinery.example"
    to_issuer = start_oidc(client)
    callback = urlencode({"redirect_uri": "https://vinery.example/accounts/oidc/login/callback/"})
    assert callback in to_issuer.url


def test_the_pages_do_not_exist_without_an_issuer(client: Client) -> None:
    assert start_oidc(client).status_code == 404
    assert client.get(reverse("openid_connect_callback")).status_code == 404
    assert client.get(reverse("socialaccount_connections")).status_code == 404
    assert "Log in with" not in client.get(reverse("account_login")).content.decode()


def test_a_verified_address_is_linked_if_allowed(client: Client, issuer: TestIssuer) -> None:
    person("countess", email="ADA@example.com")
    person("stub", email="ada@example.com", is_email_confirmed=False)  # it blocks no link

    response = oidc_sign_in(client)
    assert response.status_code == 403
    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""

    issuer.allow(links_by_email=True)
    oidc_sign_in(client)
    assert signed_in_name(client) == "countess"
    assert not User.objects.get(username="countess").has_usable_password()


def test_a_link_removes_the_access_of_the_former_user(client: Client, issuer: TestIssuer) -> None:
    """The former user knows the password, and may have added a second factor or an issuer's
    account."""
    maker, countess = Client(), person("countess", email="ada@example.com")
    sign_in(maker, "countess")
    assert signed_in_name(maker) == "countess"
    give_factor(countess)
    SocialAccount.objects.create(user=countess, provider="oidc", uid="maker")
    issuer.allow(links_by_email=True)

    oidc_sign_in(client)

    assert signed_in_name(client) == "countess"
    assert signed_in_name(maker) == ""
    countess.refresh_from_db()
    assert not countess.has_usable_password()
    assert not Authenticator.objects.exists()
    assert SocialAccount.objects.get().uid == "1234"
    entry = AuditEntry.objects.get(action="user.link")
    assert (entry.actor, entry.target, entry.ip) == ("countess", "countess", "127.0.0.1")
    forgotten = ["password", "second_factor", "connections"]
    assert entry.after == {"by": "e-mail", "forgotten": forgotten}

    # A password that is set after the link stays.
    changes.set_password(countess, PASSWORD)
    oidc_sign_in(Client())
    countess.refresh_from_db()
    assert countess.has_usable_password()
    assert AuditEntry.objects.filter(action="user.link").count() == 1


@table("verified", [False, None, "true", 1])
def test_an_unverified_address_is_not_linked_nor_kept(issuer: TestIssuer, verified: object) -> None:
    User.objects.all().delete()
    client, _ = Client(), person("countess", email="ada@example.com")
    issuer.allow(links_by_email=True, makes_accounts=True)
    issuer.claims |= {"email_verified": verified}

    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.get(username="ada").email == ""


def test_an_address_of_two_accounts_links_to_neither(client: Client, issuer: TestIssuer) -> None:
    person("one", email="ada@example.com")
    person("two", email="ada@example.com")
    issuer.allow(links_by_email=True, makes_accounts=True)

    assert oidc_sign_in(client).status_code == 403
    assert not SocialAccount.objects.exists()


@table("links_by_email", [False, True])
@table("has_account", [False, True])
def test_an_address_that_an_owner_gave_to_another_account_does_not_count(
    issuer: TestIssuer, links_by_email: bool, has_account: bool
) -> None:
    """Else an owner of another organisation could block a person's sign-in, or take over the
    account."""
    User.objects.all().delete()
    client = Client()
    issuer.allow(links_by_email=links_by_email, makes_accounts=True)
    if has_account:
        oidc_sign_in(Client())
    stub = person("stub", email="Ada@example.com", is_email_confirmed=False)

    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.get(username="ada").email == "ada@example.com"
    assert not SocialAccount.objects.filter(user=stub).exists()
    assert stub.has_usable_password()


def test_a_former_address_of_a_user_is_not_linked(client: Client, issuer: TestIssuer) -> None:
    """A company may give the address of a former employee to a new employee."""
    issuer.allow(links_by_email=True, makes_accounts=True)
    oidc_sign_in(Client())
    User.objects.update(email="ada@private.example")
    issuer.claims |= {"sub": "5678", "preferred_username": "successor"}

    response = client.get(oidc_sign_in(client).url)

    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""
    assert User.objects.count() == 1


@table("field, value", [("is_active", False), ("is_service", True)])
def test_a_refused_account_is_not_linked_or_opened(
    issuer: TestIssuer, field: str, value: bool
) -> None:
    User.objects.all().delete()
    client, robot = Client(), person("robot", email="ada@example.com", **{field: value})
    issuer.allow(links_by_email=True, makes_accounts=True)
    assert oidc_sign_in(client).status_code == 403

    SocialAccount.objects.create(user=robot, provider="oidc", uid="1234")
    assert oidc_sign_in(client).url == reverse("account_inactive")
    assert signed_in_name(client) == ""


def test_a_user_connects_and_disconnects_their_account(client: Client, issuer: TestIssuer) -> None:
    issuer.allow()
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


_OTHER_ISSUER = "https://another.example"


_WRONG_CLAIMS = {
    "nonce": ("of another sign-in", None),
    "iss": (_OTHER_ISSUER, None),
    "aud": ("another client", None, [CLIENT_ID, "another client"]),
    "azp": ("another client",),
    "exp": (1, None),
    "iat": (4_000_000_000,),
    "sub": (None, ""),
}


@table("claim, value", [(name, each) for name, wrong in _WRONG_CLAIMS.items() for each in wrong])
def test_a_token_with_a_wrong_claim_is_refused(
    issuer: TestIssuer, claim: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    client, issuer.wrong_in_token = Client(), {claim: value}
    caplog.clear()

    assert is_oidc_refused(oidc_sign_in(client))
    assert signed_in_name(client) == ""
    assert not User.objects.exists()
    assert "A sign-in through the issuer failed: The ID token" in caplog.text
    assert "ada@example.com" not in caplog.text


@table(
    "algorithm, key",
    [("RS256", new_key()), ("HS256", "a secret that is long enough to sign with"), ("none", "")],
)
def test_a_token_of_another_signer_is_refused(issuer: TestIssuer, algorithm: str, key: Any) -> None:
    client, issuer.algorithm, issuer.signing_key = Client(), algorithm, key

    assert is_oidc_refused(oidc_sign_in(client))
    assert signed_in_name(client) == ""


def test_an_issuer_may_end_in_a_slash(client: Client, issuer: TestIssuer, settings: Any) -> None:
    name = f"{issuer.url}/"
    settings.VINERY_OIDC = replace(issuer.settings(makes_accounts=True), url=name)
    assert is_oidc_refused(start_oidc(client))

    issuer.wrong_in_discovery, issuer.wrong_in_token = {"issuer": name}, {"iss": name}
    oidc_sign_in(client)
    assert signed_in_name(client) == "ada"


def test_a_wrong_or_silent_issuer_is_refused(client: Client, issuer: TestIssuer) -> None:
    to_issuer = start_oidc(client)
    back = httpx.get(to_issuer.url).headers["location"]
    issuer.is_down = True
    assert is_oidc_refused(client.get(back))
    assert is_oidc_refused(start_oidc(client))

    issuer.is_down, issuer.leaves_out_token = False, True
    assert is_oidc_refused(oidc_sign_in(client))
    issuer.leaves_out_token, issuer.userinfo = False, {"sub": "another"}
    assert is_oidc_refused(oidc_sign_in(client))
    issuer.userinfo, issuer.wrong_in_discovery = {}, {"issuer": _OTHER_ISSUER}
    assert is_oidc_refused(start_oidc(client))
    issuer.wrong_in_discovery = {}
    oidc_sign_in(client)
    assert signed_in_name(client) == "ada"


def test_an_answer_is_valid_once_in_its_own_session(client: Client, issuer: TestIssuer) -> None:
    back = httpx.URL(httpx.get(start_oidc(client).url).headers["location"])
    query = urlencode({"error": "access_denied", "state": back.params["state"]})
    response = client.get(f"{back.path}?{query}", follow=True)
    assert "You are not logged in" in response.content.decode()

    # The code fits neither the verifier nor the nonce of the session that receives it.
    stolen = httpx.get(start_oidc(Client()).url).headers["location"]
    mine = httpx.get(start_oidc(client).url).headers["location"]
    code = httpx.URL(stolen).params["code"]
    state = httpx.URL(mine).params["state"]
    planted = client.get(f"{reverse('openid_connect_callback')}?code={code}&state={state}")
    assert is_oidc_refused(planted)
    location = httpx.get(start_oidc(client).url).headers["location"]
    assert is_oidc_refused(Client().get(location))
    client.get(location)
    assert signed_in_name(client) == "ada"
    assert is_oidc_refused(client.get(location))
