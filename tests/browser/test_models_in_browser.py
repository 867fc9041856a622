"""An administrator adds models in the console, watches the load, acts on them and removes them."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import TINY_CHAT, Administrator, ask, follow, removed_after
from tests.conftest import Running, until
from tests.fakes.hub import FakeHub, Fault
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


@pytest.fixture
def rest_of_the_weights(hub_of_running: FakeHub, running: Running) -> Iterator[threading.Event]:
    """The event for which the hub holds the second half of the weights."""
    event = threading.Event()
    hub_of_running.add_folder("acme/tiny-browser", TINY_CHAT, tags=["openvino"], downloads=7)
    hub_of_running.fault("openvino_model.bin", Fault(held_by=event))
    with removed_after(running, "from-the-hub"):
        yield event
        event.set()


def test_a_model_is_found_on_a_hub_judged_and_pulled_with_a_pause(
    admin: Administrator, rest_of_the_weights: threading.Event
) -> None:
    page = admin.go("console/models/add/")
    admin.follow("From a hub")
    page.get_by_label("Search for words").fill("browser")
    admin.press("Search or check")
    follow(page.get_by_role("link", name="Check acme/tiny-browser"))
    assert page.get_by_role("heading", name="It will load.").is_visible()
    page.get_by_label("Name", exact=True).fill("from-the-hub")
    admin.press("Fetch and serve")

    state, jobs = page.locator("#state"), page.locator("#jobs")
    state.get_by_text("Pulling").wait_for()
    jobs.get_by_text(re.compile(r"B of [\d.]+ MB")).wait_for()
    assert 0 <= int(jobs.get_by_role("progressbar").get_attribute("value") or -1) < 100
    assert admin.fits()
    follow(jobs.get_by_role("button", name="Pause"))
    jobs.get_by_text("Paused", exact=True).wait_for()
    rest_of_the_weights.set()
    follow(jobs.get_by_role("button", name="Resume"))
    state.get_by_text("Ready").wait_for()
    jobs.get_by_text("Done", exact=True).wait_for()
    until(lambda: ask(admin.platform, model="from-the-hub").status_code == 200)

    admin.follow("Remove")
    admin.press("Remove")
    assert "from-the-hub is removed." in admin.main()
