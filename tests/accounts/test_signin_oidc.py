"""Sign-in through an OpenID Connect issuer that runs on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.test import Client
from django.urls import reverse
from oidc_issuer import CLIENT_ID, TestIssuer, new_key, running_issuer
from signin_helpers import PASSWORD, code_of, give_factor, person, sign_in, signed_in_name

from accounts.models import AuditEntry, Membership, Organization, Role, User
from accounts.services import changes

pytestmark = pytest.mark.django_db

ADA = {"sub": "1234", "email": "ada@example.com", "email_verified": True}


@pytest.fixture
def issuer(settings: Any) -> Iterator[TestIssuer]:
    """Run an issuer that knows Ada, with settings that create accounts."""
    with running_issuer() as issuer:
        issuer.claims = {**ADA, "preferred_username": "ada", "name": "Ada Lovelace"}
        settings.VINERY_OIDC = issuer.settings(makes_accounts=True)
        yield issuer


def begin(client: Client, **query: str) -> Any:
    """Press the sign-in button, and return the redirect to the issuer."""
    return client.post(f"{reverse('openid_connect_login')}?{urlencode(query)}")


def come_back(client: Client, to_issuer: Any) -> Any:
    """Sign in at the issuer, and follow its redirect."""
    assert to_issuer.status_code == 302, to_issuer.content
    return client.get(httpx.get(to_issuer.url).headers["location"])


def come_through(client: Client, **query: str) -> Any:
    return come_back(client, begin(client, **query))


def refused(response: Any) -> bool:
    return response.status_code == 401 and "Login failed" in response.content.decode()


# -- Accounts


def test_a_new_user_gets_an_account_if_the_settings_allow_it(
    client: Client, issuer: TestIssuer
) -> None:
    response = come_through(client, process="login", next="/accounts/sessions/")

    assert response.url == "/accounts/sessions/"
    assert signed_in_name(client) == "ada"
    ada = User.objects.get(username="ada")
    assert (ada.first_name, ada.last_name, ada.email) == ("Ada", "Lovelace", "ada@example.com")
    assert not ada.has_usable_password()
    assert not ada.is_staff
    membership = Membership.objects.get(user=ada)
    assert membership.role == Role.MEMBER


def test_the_next_sign_in_finds_the_same_account(client: Client, issuer: TestIssuer) -> None:
    come_through(client)
    client.logout()
    issuer.claims |= {"preferred_username": "countess", "email": "countess@example.com"}

    come_through(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.count() == 1


def test_a_new_user_gets_no_account_by_default(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings()

    response = come_through(client)

    assert "You have no account here" in response.content.decode()
    assert not User.objects.exists()


def test_a_new_user_with_a_taken_name_gets_another_name(client: Client, issuer: TestIssuer) -> None:
    person("ada", is_superuser=True)

    come_through(client)

    assert signed_in_name(client) not in ("", "ada")
    assert not User.objects.get(username=signed_in_name(client)).is_superuser


def test_a_verified_address_is_linked_to_its_account_if_the_settings_allow_it(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    person("countess", email="ADA@example.com")

    response = come_through(client)
    assert response.status_code == 403
    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""

    settings.VINERY_OIDC = issuer.settings(links_by_email=True)
    come_through(client)
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

    come_through(client)

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
    come_through(Client())
    countess.refresh_from_db()
    changes.set_password(countess, PASSWORD)

    come_through(client)

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

    come_through(client)

    assert signed_in_name(client) == "ada"
    assert User.objects.get(username="ada").email == ""


def test_an_address_of_two_accounts_is_linked_to_neither(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    person("one", email="ada@example.com")
    person("two", email="ada@example.com")
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)

    assert come_through(client).status_code == 403
    assert not SocialAccount.objects.exists()


def test_a_former_address_of_a_user_is_not_linked(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    """A company may give the address of a former employee to a new one."""
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)
    come_through(Client())
    User.objects.update(email="ada@private.example")
    issuer.claims |= {"sub": "5678", "preferred_username": "successor"}

    response = client.get(come_through(client).url)

    assert "This address has an account already" in response.content.decode()
    assert signed_in_name(client) == ""
    assert User.objects.count() == 1


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_service": True}])
def test_an_account_that_may_not_sign_in_is_neither_linked_nor_opened(
    client: Client, issuer: TestIssuer, settings: Any, fields: dict[str, bool]
) -> None:
    robot = person("robot", email="ada@example.com", **fields)
    settings.VINERY_OIDC = issuer.settings(links_by_email=True, makes_accounts=True)
    assert come_through(client).status_code == 403

    SocialAccount.objects.create(user=robot, provider="oidc", uid="1234")
    assert come_through(client).url == reverse("account_inactive")
    assert signed_in_name(client) == ""


def test_a_user_can_connect_and_disconnect_their_own_account(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings()
    person("countess")
    sign_in(client, "countess")
    client.post(reverse("account_reauthenticate"), {"password": "correct horse battery"})

    response = come_through(client, process="connect")
    assert response.url == reverse("socialaccount_connections")
    connected = SocialAccount.objects.get(user__username="countess")
    assert connected.uid == "1234"

    elsewhere = Client()
    come_through(elsewhere)
    assert signed_in_name(elsewhere) == "countess"

    client.post(reverse("socialaccount_connections"), {"account": connected.pk})
    assert not SocialAccount.objects.exists()


def test_vinery_asks_for_the_second_factor_after_the_issuer(
    client: Client, issuer: TestIssuer
) -> None:
    ada = person("ada")
    secret = give_factor(ada)
    SocialAccount.objects.create(user=ada, provider="oidc", uid="1234")

    assert come_through(client).url.startswith(reverse("mfa_authenticate"))
    assert signed_in_name(client) == ""

    client.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert signed_in_name(client) == "ada"


def test_a_user_of_the_issuer_cannot_set_a_password(client: Client, issuer: TestIssuer) -> None:
    come_through(client)

    page = client.get(reverse("account_change_password"), follow=True)
    client.post(reverse("account_set_password"), {"password1": "x" * 20, "password2": "x" * 20})

    assert "Your account has no password" in page.content.decode()
    assert not User.objects.get().has_usable_password()


def test_the_issuer_s_tokens_are_not_kept(client: Client, issuer: TestIssuer) -> None:
    come_through(client)

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
    come_through(client)
    ada = User.objects.get(username="ada")
    assert (ada.is_superuser, ada.is_staff) == (True, True)
    organization = Organization.objects.get(name="Analytical Engines")
    assert Membership.objects.get(user=ada, organization=organization).role == Role.ADMIN

    issuer.userinfo = {"groups": "staff"}
    come_through(Client())
    ada.refresh_from_db()
    assert (ada.is_superuser, ada.is_staff) == (False, False)
    assert Membership.objects.get(user=ada, organization=organization).role == Role.MEMBER

    issuer.userinfo = {}
    come_through(Client())
    assert not Membership.objects.filter(user=ada).exists()


def test_the_last_superuser_keeps_the_right(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    settings.VINERY_OIDC = issuer.settings(groups_claim="groups", admin_group="operators")
    root = person("root", is_superuser=True, is_staff=True)
    SocialAccount.objects.create(user=root, provider="oidc", uid="1234")

    come_through(client)

    root.refresh_from_db()
    assert root.is_superuser


# -- Requests


def test_each_request_to_the_issuer_has_a_new_state_nonce_and_challenge(
    client: Client, issuer: TestIssuer
) -> None:
    come_through(client)
    come_through(Client())

    first, second = issuer.asked
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
    assert set(first["scope"].split()) == {"openid", "profile", "email"}


def test_a_link_cannot_change_the_request_to_the_issuer(client: Client, issuer: TestIssuer) -> None:
    to_issuer = begin(client, scope="everything", auth_params="nonce=mine&prompt=none")

    come_back(client, to_issuer)
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

    to_issuer = begin(client)

    callback = urlencode({"redirect_uri": "https://vinery.example/accounts/oidc/login/callback/"})
    assert callback in to_issuer.url


def test_the_pages_do_not_exist_without_an_issuer(client: Client) -> None:
    assert begin(client).status_code == 404
    assert client.get(reverse("openid_connect_callback")).status_code == 404
    assert client.get(reverse("socialaccount_connections")).status_code == 404
    assert "Log in with" not in client.get(reverse("account_login")).content.decode()


def test_the_sign_in_page_offers_the_issuer(client: Client, issuer: TestIssuer) -> None:
    page = client.get(reverse("account_login")).content.decode()

    assert "Log in with single sign-on" in page


# -- Refusals

_OTHER_ISSUER = "https://another.example"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"iss": _OTHER_ISSUER},
        {"iss": None},
        {"aud": "another client"},
        {"aud": None},
        {"aud": [CLIENT_ID, "another client"]},
        {"azp": "another client"},
        {"exp": 1},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"sub": None},
        {"sub": ""},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_refused(
    client: Client, issuer: TestIssuer, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    issuer.wrong_in_token = claims

    assert refused(come_through(client))
    assert signed_in_name(client) == ""
    assert not User.objects.exists()
    assert "A sign-in through the issuer failed: The ID token" in caplog.text
    assert "ada@example.com" not in caplog.text


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", new_key()),
        ("HS256", "the client's secret, which is long enough to sign with"),
        ("none", ""),
    ],
)
def test_a_token_that_the_issuer_did_not_sign_is_refused(
    client: Client, issuer: TestIssuer, algorithm: str, key: Any
) -> None:
    issuer.algorithm, issuer.signing_key = algorithm, key

    assert refused(come_through(client))
    assert signed_in_name(client) == ""


def test_an_answer_without_a_token_is_refused(client: Client, issuer: TestIssuer) -> None:
    issuer.leaves_out_token = True

    assert refused(come_through(client))


def test_userinfo_of_another_user_is_refused(client: Client, issuer: TestIssuer) -> None:
    issuer.userinfo = {"sub": "another"}

    assert refused(come_through(client))


def test_a_discovery_document_of_another_issuer_is_refused(
    client: Client, issuer: TestIssuer
) -> None:
    issuer.wrong_in_discovery = {"issuer": _OTHER_ISSUER}

    assert refused(begin(client))


def test_the_name_of_an_issuer_may_end_in_a_slash(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    name = f"{issuer.url}/"
    settings.VINERY_OIDC = replace(issuer.settings(makes_accounts=True), url=name)
    assert refused(begin(client))

    issuer.wrong_in_discovery, issuer.wrong_in_token = {"issuer": name}, {"iss": name}
    come_through(client)
    assert signed_in_name(client) == "ada"


def test_an_unavailable_issuer_is_reported_before_and_after_the_redirect(
    client: Client, issuer: TestIssuer
) -> None:
    to_issuer = begin(client)
    back = httpx.get(to_issuer.url).headers["location"]
    issuer.is_down = True

    assert refused(client.get(back))
    assert refused(begin(client))


def test_an_answer_is_valid_once_in_its_own_session(client: Client, issuer: TestIssuer) -> None:
    back = httpx.get(begin(client).url).headers["location"]

    assert refused(Client().get(back))
    client.get(back)
    assert signed_in_name(client) == "ada"
    assert refused(client.get(back))


def test_a_code_of_another_session_is_refused(client: Client, issuer: TestIssuer) -> None:
    """The code fits neither the verifier nor the nonce of the session that receives it."""
    stolen = httpx.get(begin(Client()).url).headers["location"]
    mine = httpx.get(begin(client).url).headers["location"]
    code = httpx.URL(stolen).params["code"]
    state = httpx.URL(mine).params["state"]

    planted = client.get(f"{reverse('openid_connect_callback')}?code={code}&state={state}")

    assert refused(planted)


def test_a_cancelled_sign_in_is_reported(client: Client, issuer: TestIssuer) -> None:
    back = httpx.URL(httpx.get(begin(client).url).headers["location"])
    query = urlencode({"error": "access_denied", "state": back.params["state"]})

    response = client.get(f"{back.path}?{query}", follow=True)

    assert "You are not logged in" in response.content.decode()
