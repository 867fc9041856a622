"""A person signs in to a running platform, in a real browser: with a password, with a new second
factor, and with a recovery code."""

import base64
import hmac
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.browser.conftest import Administrator
from tests.conftest import Running
from tests.system.clients import vinery

pytestmark = pytest.mark.system

_NAME = "grace"
_PERIOD_S = 30


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
