"""An administrator adds models in the console, watches the load, acts on them and removes them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import TINY_CHAT, Administrator, ask, removed_after
from tests.conftest import Running, until
from tests.system.clients import vinery
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name, log_path
from vinery_serving.processes.logs.lines import time_text


@pytest.fixture
def folder_model(running: Running) -> Iterator[str]:
    with removed_after(running, "from-the-browser"):
        yield "from-the-browser"


def test_a_model_is_added_from_a_folder_watched_used_and_removed_by_the_keyboard(
    admin: Administrator, running: Running, folder_model: str
) -> None:
    page = admin.go("console/models/")
    admin.enter(page.get_by_role("link", name="Add a model"))
    admin.enter(page.get_by_role("link", name="From a folder"))
    page.get_by_label("Name", exact=True).fill(folder_model)
    page.get_by_label("Folder").fill("/nowhere")
    admin.enter(page.get_by_role("button", name="Add"))
    assert "There is no folder /nowhere." in page.locator(".errorlist").inner_text()
    assert admin.fits()

    page.get_by_label("Folder").fill(str(TINY_CHAT))
    admin.enter(page.get_by_role("button", name="Add"))
    state = page.locator("#state")  # follows the engine without a reload
    state.get_by_text("Ready", exact=True).wait_for()
    page.locator("#engine").get_by_text("2,048 tokens").wait_for()
    assert f'"model": "{folder_model}"' in page.locator("#curl").inner_text()
    assert admin.fits()
    until(lambda: ask(admin.platform, model=folder_model).status_code == 200)

    admin.enter(page.get_by_role("button", name="Unload"))
    state.get_by_text("Unloaded", exact=True).wait_for()
    admin.enter(page.get_by_role("link", name="History"))
    page.locator("#history").get_by_text("Unloaded").first.wait_for()
    assert admin.fits()
    admin.enter(page.get_by_role("link", name="Log", exact=True))
    assert "ready" in page.locator("#log").inner_text()
    admin.enter(page.get_by_role("link", name="Settings"))
    page.get_by_text("Batching").click()
    page.get_by_label("max_running", exact=True).fill("many")
    admin.press("Save")
    assert "max_running must be a whole number" in page.locator(".errorlist").inner_text()
    page.get_by_label("max_running", exact=True).fill("3")
    admin.press("Save")
    assert "is changed." in admin.main()
    assert '{"max_running": 3}' in vinery(running, "model", "show", folder_model)

    page = admin.go("console/models/")
    assert admin.fits()
    row = page.get_by_role("row").filter(has_text=folder_model)
    admin.enter(row.get_by_role("button", name="Load"))
    row.get_by_text("Ready", exact=True).wait_for()
    until(lambda: row.locator("[data-name=Running]").inner_text() == "0")

    admin.enter(page.get_by_role("link", name=folder_model, exact=True))
    admin.enter(page.get_by_role("link", name="Remove"))
    admin.enter(page.get_by_role("button", name="Remove"))
    assert f"{folder_model} is removed." in admin.main()


def test_the_log_of_an_engine_is_followed_in_the_browser(admin: Administrator) -> None:
    page = admin.go("console/models/")
    admin.follow("tiny-chat")
    admin.follow("Log")
    log = page.locator("#log")
    page.get_by_text("New lines appear by themselves.").wait_for()
    before = log.inner_text()
    path = log_path(admin.platform.home / "logs", engine_name("tiny-chat"))

    _log(path, "<b>new</b>")
    log.get_by_text("<b>new</b>").wait_for()
    path.rename(path.with_name(f"{path.name}.1"))  # as when it is full
    _log(path, "in the next file")

    log.get_by_text("in the next file").wait_for()
    assert log.inner_text().startswith(before.splitlines()[0] if before else "")


def _log(path: Path, text: str) -> None:
    line = f"{time_text(time.time())} INFO engine-tiny-chat room: {text}\n"
    LogFile(path, LogBounds()).write(line.encode())
