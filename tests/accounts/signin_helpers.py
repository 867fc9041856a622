"""Helpers for tests of sign-in: users with passwords, TOTP codes, and the way through an issuer."""

import base64
import hmac
import struct
import time
from typing import Any
from urllib.parse import urlencode

import httpx
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.test import Client
from django.urls import reverse

from vinery_accounts.models import User

PASSWORD = "correct horse battery"


def code_of(secret: str, *, periods_from_now: int = 0) -> str:
    """Compute the TOTP code of RFC 6238 without the library under test."""
    counter = int(time.time()) // 30 + periods_from_now
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 0xF
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 10**6:06}"


def person(username: str = "alice", **fields: Any) -> User:
    """Create a user with the password `PASSWORD`."""
    return User.objects.create_user(username, password=PASSWORD, **fields)


def give_factor(user: User) -> str:
    """Add a second factor with recovery codes, and return its secret."""
    secret = generate_totp_secret()
    TOTP.activate(user, secret)
    RecoveryCodes.activate(user)
    return secret


def recovery_codes(user: User) -> list[str]:
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.RECOVERY_CODES)
    return RecoveryCodes(row).get_unused_codes()


def sign_in(
    client: Client, username: str, password: str = PASSWORD, next: str = "", **extra: Any
) -> Any:
    """Post the form of the sign-in page, as a browser does."""
    form = {"login": username, "password": password} | ({"next": next} if next else {})
    return client.post(reverse("account_login"), form, **extra)


def enter_code(client: Client, code: str) -> Any:
    return client.post(reverse("mfa_authenticate"), {"code": code})


def offered_secret(client: Client) -> str:
    """The secret of the second factor on the setup page."""
    return client.get(reverse("mfa_activate_totp")).context["form"].secret


def set_up_factor(client: Client, code: str, **extra: Any) -> Any:
    return client.post(reverse("mfa_activate_totp"), {"code": code}, **extra)


def confirm_password(client: Client) -> None:
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})


def start_oidc(client: Client, **query: str) -> Any:
    """Press the sign-in button, and return the redirect to the issuer."""
    return client.post(f"{reverse('openid_connect_login')}?{urlencode(query)}")


def finish_oidc(client: Client, to_issuer: Any) -> Any:
    """Sign in at the issuer, and follow its redirect."""
    assert to_issuer.status_code == 302, to_issuer.content
    return client.get(httpx.get(to_issuer.url).headers["location"])


def oidc_sign_in(client: Client, **query: str) -> Any:
    return finish_oidc(client, start_oidc(client, **query))


def text_of(response: Any) -> str:
    return response.content.decode()


def is_locked(response: Any) -> bool:
    return "Too many failed login attempts." in text_of(response)


def change_password(client: Client, new: str) -> Any:
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    return client.post(reverse("account_change_password"), form)


def is_oidc_refused(response: Any) -> bool:
    return response.status_code == 401 and "Login failed" in response.content.decode()


def signed_in_name(client: Client) -> str:
    """Return the name of the session's user, or "" without a session."""
    response = client.get(reverse("account_overview"))
    return response.wsgi_request.user.get_username() if response.status_code == 200 else ""
