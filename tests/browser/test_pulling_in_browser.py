"""An administrator finds a model on a hub in the console, and pulls it with a pause."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from tests.browser.conftest import Administrator, ask, follow
from tests.conftest import REPOSITORY, Running, until
from tests.fakes.hub import FakeHub, Fault
from tests.system.commands import vinery

pytestmark = pytest.mark.system
NAME = "from-the-hub"
_TIMEOUT_MS = 60_000  # the process of a job starts, and then that of an engine


@pytest.fixture
def rest_of_the_weights(hub_of_running: FakeHub, running: Running) -> Iterator[threading.Event]:
    """The event for which the hub holds the second half of the weights."""
    event = threading.Event()
    tiny_chat = REPOSITORY / "models" / "tiny-chat"
    hub_of_running.add_folder("acme/tiny-browser", tiny_chat, tags=["openvino"], downloads=7)
    hub_of_running.fault("openvino_model.bin", Fault(held_by=event))
    yield event
    event.set()
    if NAME in vinery(running, "model", "list"):
        vinery(running, "model", "remove", NAME)


def test_a_model_is_found_on_a_hub_judged_and_pulled_with_a_pause(
    admin: Administrator, rest_of_the_weights: threading.Event
) -> None:
    page = admin.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{admin.platform.base_url}/console/models/add/")
    follow(page.get_by_role("link", name="From a hub"))
    page.get_by_label("Search for words").fill("browser")
    follow(page.get_by_role("button", name="Search or check"))
    follow(page.get_by_role("link", name="Check acme/tiny-browser"))
    assert page.get_by_role("heading", name="It will load.").is_visible()
    page.get_by_label("Name:", exact=True).fill(NAME)
    follow(page.get_by_role("button", name="Fetch and serve"))

    state, jobs = page.locator("#state"), page.locator("#jobs")
    state.get_by_text("Pulling").wait_for()
    jobs.get_by_text(re.compile(r"B of [\d.]+ MB")).wait_for(timeout=_TIMEOUT_MS)
    assert 0 <= int(jobs.get_by_role("progressbar").get_attribute("value") or -1) < 100
    follow(jobs.get_by_role("button", name="Pause"))
    jobs.get_by_text("Paused", exact=True).wait_for(timeout=_TIMEOUT_MS)
    rest_of_the_weights.set()
    follow(jobs.get_by_role("button", name="Resume"))
    state.get_by_text("Ready").wait_for(timeout=_TIMEOUT_MS)
    jobs.get_by_text("Done", exact=True).wait_for()
    until(lambda: ask(admin.platform, model=NAME).status_code == 200)

    follow(page.get_by_role("link", name="Remove"))
    follow(page.get_by_role("button", name="Remove"))
    assert f"{NAME} is no longer served." in page.inner_text("main")
