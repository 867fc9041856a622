"""Wrong answers of an OpenID Connect issuer, which are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.test import Client
from django.urls import reverse
from oidc_issuer import CLIENT_ID, TestIssuer, new_key
from signin_helpers import is_oidc_refused, oidc_sign_in, signed_in_name, start_oidc

from vinery_accounts.models import User

pytestmark = pytest.mark.django_db

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

    assert is_oidc_refused(oidc_sign_in(client))
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

    assert is_oidc_refused(oidc_sign_in(client))
    assert signed_in_name(client) == ""


def test_an_answer_without_a_token_is_refused(client: Client, issuer: TestIssuer) -> None:
    issuer.leaves_out_token = True

    assert is_oidc_refused(oidc_sign_in(client))


def test_userinfo_of_another_user_is_refused(client: Client, issuer: TestIssuer) -> None:
    issuer.userinfo = {"sub": "another"}

    assert is_oidc_refused(oidc_sign_in(client))


def test_a_discovery_document_of_another_issuer_is_refused(
    client: Client, issuer: TestIssuer
) -> None:
    issuer.wrong_in_discovery = {"issuer": _OTHER_ISSUER}

    assert is_oidc_refused(start_oidc(client))


def test_the_name_of_an_issuer_may_end_in_a_slash(
    client: Client, issuer: TestIssuer, settings: Any
) -> None:
    name = f"{issuer.url}/"
    settings.VINERY_OIDC = replace(issuer.settings(makes_accounts=True), url=name)
    assert is_oidc_refused(start_oidc(client))

    issuer.wrong_in_discovery, issuer.wrong_in_token = {"issuer": name}, {"iss": name}
    oidc_sign_in(client)
    assert signed_in_name(client) == "ada"


def test_an_unavailable_issuer_is_reported_before_and_after_the_redirect(
    client: Client, issuer: TestIssuer
) -> None:
    to_issuer = start_oidc(client)
    back = httpx.get(to_issuer.url).headers["location"]
    issuer.is_down = True

    assert is_oidc_refused(client.get(back))
    assert is_oidc_refused(start_oidc(client))


def test_an_answer_is_valid_once_in_its_own_session(client: Client, issuer: TestIssuer) -> None:
    back = httpx.get(start_oidc(client).url).headers["location"]

    assert is_oidc_refused(Client().get(back))
    client.get(back)
    assert signed_in_name(client) == "ada"
    assert is_oidc_refused(client.get(back))


def test_a_code_of_another_session_is_refused(client: Client, issuer: TestIssuer) -> None:
    """The code fits neither the verifier nor the nonce of the session that receives it."""
    stolen = httpx.get(start_oidc(Client()).url).headers["location"]
    mine = httpx.get(start_oidc(client).url).headers["location"]
    code = httpx.URL(stolen).params["code"]
    state = httpx.URL(mine).params["state"]

    planted = client.get(f"{reverse('openid_connect_callback')}?code={code}&state={state}")

    assert is_oidc_refused(planted)


def test_a_cancelled_sign_in_is_reported(client: Client, issuer: TestIssuer) -> None:
    back = httpx.URL(httpx.get(start_oidc(client).url).headers["location"])
    query = urlencode({"error": "access_denied", "state": back.params["state"]})

    response = client.get(f"{back.path}?{query}", follow=True)

    assert "You are not logged in" in response.content.decode()
