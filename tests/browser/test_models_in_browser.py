"""An administrator adds a model in the console, watches it load, acts on it and removes it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator, ask, follow
from tests.conftest import REPOSITORY, Running, until
from tests.system.commands import vinery
from vinery_serving.logs.file import LogBounds, LogFile
from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.logs.lines import time_text

pytestmark = pytest.mark.system
TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


@pytest.fixture
def name(running: Running) -> Iterator[str]:
    """The name of a model that a test adds."""
    yield "from-the-browser"
    if "from-the-browser" in vinery(running, "model", "list"):
        vinery(running, "model", "remove", "from-the-browser")


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    admin.page.goto(f"{admin.platform.base_url}/console/models/{path}")
    return admin.page


def _fits(page: sync_api.Page) -> bool:
    """Return whether nothing is wider than the screen."""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(wide)) <= 0


def _press(page: sync_api.Page, wanted: sync_api.Locator) -> None:
    """Move the focus by the keyboard to this element, and press Enter."""
    for _ in range(120):
        if wanted.evaluate("element => element === document.activeElement"):
            break
        page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")


def _wait_for_state(page: sync_api.Page, state: str) -> None:
    """Wait, without a reload, until the page shows this state."""
    page.locator("#state").get_by_text(state, exact=True).wait_for()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_model_is_added_from_a_folder_watched_used_and_removed_by_the_keyboard(
    admin: Administrator, name: str, width: int
) -> None:
    admin.page.set_viewport_size({"width": width, "height": 800})
    page = _go(admin)
    _press(page, page.get_by_role("link", name="Add a model"))
    _press(page, page.get_by_role("link", name="From a folder"))
    page.get_by_label("Name").fill(name)
    page.get_by_label("Folder").fill("/nowhere")
    _press(page, page.get_by_role("button", name="Add"))
    assert "There is no folder /nowhere." in page.locator(".errorlist").inner_text()
    assert _fits(page)

    page.get_by_label("Folder").fill(str(TINY_CHAT))
    _press(page, page.get_by_role("button", name="Add"))
    _wait_for_state(page, "Ready")
    page.locator("#history").get_by_text("Ready").first.wait_for()
    page.locator("#engine").get_by_text("2,048 tokens").wait_for()
    assert f'"model": "{name}"' in page.locator("#curl").inner_text()
    assert "ready" in page.locator("#log").inner_text()
    assert _fits(page)
    until(lambda: ask(admin.platform, model=name).status_code == 200)

    _press(page, page.get_by_role("button", name="Unload"))
    _wait_for_state(page, "Unloaded")
    _press(page, page.get_by_role("button", name="Load"))
    _wait_for_state(page, "Ready")
    assert page.locator("#history").get_by_text("Unloaded").count() >= 1

    page = _go(admin)
    assert _fits(page)
    _press(page, page.get_by_role("link", name=name))
    _press(page, page.get_by_role("link", name="Remove"))
    _press(page, page.get_by_role("button", name="Remove"))
    assert f"{name} is no longer served." in page.inner_text("main")


def test_settings_are_changed_on_the_page_and_the_list_follows_the_engine(
    admin: Administrator, running: Running, name: str
) -> None:
    vinery(running, "model", "add", str(TINY_CHAT), "--name", name, "--no-load")
    page = _go(admin)
    follow(page.get_by_role("link", name=name))
    page.get_by_text("Engine options").click()
    page.get_by_label("max_running", exact=True).fill("many")
    follow(page.get_by_role("button", name="Save"))
    assert "max_running must be a whole number" in page.locator(".errorlist").inner_text()
    page.get_by_label("max_running", exact=True).fill("3")
    follow(page.get_by_role("button", name="Save"))
    assert "is changed." in page.inner_text("main")
    assert '{"max_running": 3}' in vinery(running, "model", "show", name)

    page = _go(admin)
    row = page.get_by_role("row").filter(has_text=name)
    follow(row.get_by_role("button", name="Load"))
    row.get_by_text("Ready", exact=True).wait_for()
    until(lambda: row.locator("[data-name=Running]").inner_text() == "0")


def test_the_log_of_an_engine_is_followed_in_the_browser(admin: Administrator) -> None:
    page = _go(admin)
    follow(page.get_by_role("link", name="tiny-chat", exact=True))
    follow(page.get_by_role("link", name="Follow the log"))
    log = page.locator("#log")
    page.get_by_text("New lines appear by themselves.").wait_for()
    before = log.inner_text()
    path = log_path(admin.platform.home / "logs", engine_name("tiny-chat"))
    file = LogFile(path, LogBounds())

    file.write(f"{time_text(time.time())} INFO engine-tiny-chat room: <b>new</b>\n".encode())
    log.get_by_text("<b>new</b>").wait_for()
    path.rename(path.with_name(f"{path.name}.1"))  # as when it is full
    LogFile(path, LogBounds()).write(
        f"{time_text(time.time())} INFO engine-tiny-chat room: in the next file\n".encode()
    )

    log.get_by_text("in the next file").wait_for()
    assert log.inner_text().startswith(before.splitlines()[0] if before else "")
