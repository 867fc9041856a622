"""A person signs in to a running platform, in a real browser: with a password, with a new second
factor, with a recovery code, and with a passkey."""

import base64
import hmac
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Administrator, someone_at
from tests.conftest import Running
from tests.system.clients import vinery

_NAME = "grace"
_PERIOD_S = 30
_AUTHENTICATOR: Final[dict[str, Any]] = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def password(running: Running) -> Iterator[str]:
    """The password of an administrator of these tests alone: the others have no second factor."""
    yield vinery(running, "user", "create", _NAME, "--administrator").split()[-1]
    vinery(running, "user", "remove", _NAME)


def _code(secret: str, period: int) -> str:
    """The code that the app shows in a period (RFC 6238)."""
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", period), "sha1")
    offset = digest[-1] & 0xF
    return f"{(struct.unpack('>I', digest[offset : offset + 4])[0] & 0x7FFFFFFF) % 10**6:06}"


def _log_in(someone: Administrator, password: str) -> None:
    someone.go(f"accounts/login/?{urlencode({'next': '/admin/'})}")
    someone.log_in(_NAME, password)


def _log_out(someone: Administrator) -> None:
    someone.go("accounts/logout/")
    someone.press("Log out")


def _set_up(someone: Administrator) -> tuple[str, int, list[str]]:
    """Set up a second factor from the admin's first page. Returns the secret, the used period, and
    the recovery codes."""
    page = someone.page
    for link in ("Your account", "Two-factor authentication", "Set it up"):
        someone.follow(link)
    assert page.locator(".qr img").evaluate("image => image.complete && image.naturalWidth > 0")
    secret = page.locator("#totp-secret").inner_text()
    period = int(time.time()) // _PERIOD_S
    page.get_by_label("Authenticator code").fill(_code(secret, period))
    someone.press("Turn on")
    return secret, period, page.locator("#recovery-codes").inner_text().split()


def test_a_second_factor_is_set_up_used_and_recovered(
    stranger: Administrator, password: str
) -> None:
    page, admin = stranger.page, f"{stranger.platform.base_url}/admin/"
    _log_in(stranger, password)
    assert page.url == admin
    secret, period, recovery_codes = _set_up(stranger)
    assert len(recovery_codes) == 10

    _log_out(stranger)
    _log_in(stranger, password)
    assert "/accounts/2fa/authenticate/" in page.url
    # The code of the next period holds already, and still if that has begun.
    page.get_by_label("Code").fill(_code(secret, period + 1))
    stranger.press("Log in")
    assert page.url == admin

    _log_out(stranger)
    _log_in(stranger, password)
    stranger.go("admin/")  # the password alone
    assert "/accounts/2fa/authenticate/" in page.url

    page.get_by_label("Code").fill(recovery_codes[0])
    stranger.press("Log in")
    assert page.url == admin


def test_a_passkey_logs_in_alone_and_after_the_password(
    chromium: Browser, running: Running, password: str
) -> None:
    local = replace(running, base_url=running.base_url.replace("127.0.0.1", "localhost"))
    with someone_at(chromium, local) as someone:
        page = someone.page
        device = page.context.new_cdp_session(page)
        device.send("WebAuthn.enable")
        device.send("WebAuthn.addVirtualAuthenticator", {"options": _AUTHENTICATOR})
        _log_in(someone, password)
        someone.go("accounts/2fa/webauthn/")
        someone.follow("Add a passkey")
        page.get_by_label("Name").fill("laptop")
        someone.press("Add the passkey")
        assert len(page.locator("#recovery-codes").inner_text().split()) == 10

        _log_out(someone)
        someone.go("accounts/login/?next=/console/keys/")
        someone.press("Log in with a passkey")
        page.wait_for_url("**/console/keys/")

        _log_out(someone)
        _log_in(someone, password)
        someone.press("Use a passkey")
        page.wait_for_url("**/admin/")

        someone.go("accounts/2fa/webauthn/")
        someone.follow("Remove laptop")
        someone.press("Remove")
        assert page.get_by_text("You have no passkey yet.").is_visible()
