"""How a person signs in to a running platform, in a real browser: with a password, with a second
factor that they set up there, and with a recovery code."""

from __future__ import annotations

import base64
import hmac
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright import sync_api

from tests import forked_commands
from tests.browser.conftest import Administrator, follow
from tests.conftest import Running, until

pytestmark = pytest.mark.system

_NAME, _PASSWORD = "grace", "a password of her own"


def _people(running: Running, *words: str) -> None:
    module, environment = "tests.browser.people", running.environment
    forked_commands.run(*words, module=module, environment=environment).check_returncode()


@pytest.fixture
def grace(running: Running) -> Iterator[None]:
    """An administrator of these tests alone: the others sign in without a second factor."""
    _people(running, "create", _NAME, _PASSWORD)
    yield
    _people(running, "delete", _NAME)


def _code(secret: str, *, periods_from_now: int = 0) -> str:
    """What the app would show (RFC 6238)."""
    counter = int(time.time()) // 30 + periods_from_now
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 0xF
    return f"{(struct.unpack('>I', digest[offset : offset + 4])[0] & 0x7FFFFFFF) % 10**6:06}"


def _press(page: sync_api.Page, name: str) -> None:
    follow(page.get_by_role("button", name=name, exact=True))


def _give_password(page: sync_api.Page, base_url: str, wanted: str = "/admin/") -> None:
    page.goto(f"{base_url}/accounts/login/?{urlencode({'next': wanted})}")
    page.get_by_label("Username").fill(_NAME)
    page.get_by_label("Password").fill(_PASSWORD)
    _press(page, "Log in")


def _log_out(page: sync_api.Page, base_url: str) -> None:
    page.goto(f"{base_url}/accounts/logout/")
    _press(page, "Log out")


def _set_up(page: sync_api.Page) -> tuple[str, list[str]]:
    """From the admin's first page; returns the secret and the recovery codes."""
    follow(page.get_by_role("link", name="Your account"))
    follow(page.get_by_role("link", name="Two-factor authentication"))
    follow(page.get_by_role("link", name="Set it up"))
    assert page.locator(".qr img").evaluate("image => image.complete && image.naturalWidth > 0")
    secret = page.locator("#totp-secret").inner_text()
    # The code of a moment ago, so that the next one is not used up. It must still hold when it
    # has come.
    until(lambda: time.time() % 30 < 20)
    page.get_by_label("Authenticator code").fill(_code(secret, periods_from_now=-1))
    _press(page, "Turn on")
    return secret, page.locator("#recovery-codes").inner_text().split()


def test_a_second_factor_is_set_up_used_and_recovered(stranger: Administrator, grace: None) -> None:
    page, base_url = stranger.page, stranger.platform.base_url
    _give_password(page, base_url)
    assert page.url == f"{base_url}/admin/"
    secret, recovery_codes = _set_up(page)
    assert len(recovery_codes) == 10

    _log_out(page, base_url)
    _give_password(page, base_url)
    assert "/accounts/2fa/authenticate/" in page.url
    page.get_by_label("Code").fill(_code(secret))
    _press(page, "Log in")
    assert page.url == f"{base_url}/admin/"

    _log_out(page, base_url)
    _give_password(page, base_url)
    page.goto(f"{base_url}/admin/")  # the password alone
    assert "/accounts/2fa/authenticate/" in page.url

    page.get_by_label("Code").fill(recovery_codes[0])
    _press(page, "Log in")
    assert page.url == f"{base_url}/admin/"


def test_a_wrong_password_is_reported_at_its_field(stranger: Administrator, grace: None) -> None:
    page, base_url = stranger.page, stranger.platform.base_url
    page.goto(f"{base_url}/accounts/login/")
    page.get_by_label("Username").fill(_NAME)
    page.get_by_label("Password").fill("not it")
    _press(page, "Log in")

    assert "not correct" in page.locator(".errornote").inner_text()


def test_the_pages_fit_on_a_phone(stranger: Administrator, grace: None) -> None:
    page, base_url = stranger.page, stranger.platform.base_url
    page.set_viewport_size({"width": 360, "height": 640})
    paths = ("", "2fa/", "sessions/", "password/change/", "logout/", "login/", "password/reset/")
    _give_password(page, base_url, "/accounts/")

    for path in paths:
        page.goto(f"{base_url}/accounts/{path}")
        assert page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        ), path
