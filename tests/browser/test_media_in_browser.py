"""An administrator allows hosts of media in the console, and tests a URL, on a running platform."""

from __future__ import annotations

import re

import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator, follow

pytestmark = pytest.mark.system

HOST = "cdn.b\u00fccher.example"
STORED = "cdn.xn--bcher-kva.example"


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    admin.page.goto(f"{admin.platform.base_url}/console/media/{path}")
    return admin.page


def _change(page: sync_api.Page) -> None:
    row = page.locator("tr").filter(has_text=STORED)
    follow(row.get_by_role("link", name=re.compile("Change")))


def test_a_host_is_allowed_tested_changed_and_removed(admin: Administrator) -> None:
    page = _go(admin)
    assert "Nothing is allowed yet." in page.inner_text("main")

    follow(page.get_by_role("link", name="Allow a host"))
    page.get_by_label("Host").fill("*")
    follow(page.get_by_role("button", name="Save"))
    assert "would allow every host" in page.locator(".errorlist").inner_text()
    page.get_by_label("Host").fill(HOST)
    page.get_by_text("More options").click()
    page.get_by_label("Ports").fill("8443, 443")
    follow(page.get_by_role("button", name="Save"))
    assert "It is in force within a second." in page.inner_text("main")
    row = page.locator("tr").filter(has_text=STORED)
    assert "443, 8443" in row.inner_text()

    follow(page.get_by_role("link", name="Test a URL"))
    page.get_by_label("URL or path").fill("https://other.example/cat.png")
    follow(page.get_by_role("button", name="Test"))
    assert "https://other.example/cat.png is refused" in page.inner_text("main")
    assert "do not allow https://other.example" in page.inner_text("main")

    page = _go(admin)
    _change(page)
    page.get_by_label("Note").fill("pictures of the shop")
    follow(page.get_by_role("button", name="Save"))
    assert "pictures of the shop" in page.inner_text("main")

    _change(page)
    follow(page.get_by_role("link", name="Remove"))
    follow(page.get_by_role("button", name="Remove"))
    assert f"{STORED} is removed." in page.inner_text("main")
