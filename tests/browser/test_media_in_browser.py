"""An administrator allows hosts of media in the console, and tests a URL, on a running platform."""

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator
from tests.conftest import Running
from tests.media.picture_server import picture, serving_a_picture
from tests.system.clients import vinery


@pytest.fixture
def host(running: Running) -> Iterator[str]:
    """The address of a server with a picture, without a rule before and after the test."""
    with serving_a_picture(picture(112, 112)) as port:
        yield f"http://127.0.0.1:{port}"
    vinery(running, "media", "deny", "127.0.0.1", "--remove")


def _save_with_the_network(admin: Administrator) -> None:
    networks = admin.page.get_by_label("Networks")
    if not networks.is_visible():
        admin.page.locator("summary").first.click()
    networks.fill("127.0.0.0/8")
    admin.press("Save")
    assert "It is in force within a second." in admin.main()


# -- The tester


def _test(admin: Administrator, url: str) -> sync_api.Page:
    """Test a URL for any caller by the keyboard alone."""
    page = admin.go("console/media/test/")
    admin.focus(page.get_by_label("URL or path"))
    page.keyboard.type(url)
    page.get_by_label("For a request of").select_option(label="The whole platform")
    with page.expect_navigation():
        page.get_by_label("URL or path").press("Enter")
    return page


def _steps(page: sync_api.Page) -> dict[str, str]:
    """Return the result and details of each step by its name."""
    rows = page.locator("section[aria-labelledby=result] tbody tr").all()
    cells = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]
    return {name: f"{result}: {details}" for name, result, details in cells}


def test_the_tester_shows_each_step_and_allows_what_it_refused_by_the_keyboard(
    admin: Administrator, host: str
) -> None:
    url = f"{host}/{'long' * 80}.png?token=secret"

    page = _test(admin, url)
    assert page.title().startswith("Refused: ")
    assert f"refused: The media rules of the platform do not allow {host}" in _steps(page)["Denied"]
    assert admin.fits()
    admin.enter(admin.page.get_by_role("link", name=f"Allow: {host}"))
    assert admin.fits()
    admin.enter(admin.page.get_by_role("button", name="Save"))
    assert "It is in force within a second." in admin.main()
    assert admin.fits()

    page = _test(admin, url)
    assert "is not public" in _steps(page)["Denied"]
    admin.enter(admin.page.get_by_role("link", name=f"Change the rule: {host}"))
    _save_with_the_network(admin)

    page = _test(admin, url)
    assert page.title().startswith("Allowed: ")
    steps = _steps(page)
    assert list(steps) == ["Rule", "Addresses", "Response", "Bytes", "Decoding"]
    assert all(step.startswith("ok: ") for step in steps.values())
    assert "127.0.0.1" in steps["Addresses"]
    assert "image/png" in steps["Response"]
    assert "picture of 112 x 112 pixels" in steps["Decoding"]
    assert page.get_by_role("link", name=f"Allow: {host}").count() == 0
    assert admin.fits()
