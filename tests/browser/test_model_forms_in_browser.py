"""An administrator adds a model from an archive, names it, and tunes it in the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Administrator, ask, follow
from tests.conftest import REPOSITORY, Running, until
from tests.system.commands import vinery

pytestmark = pytest.mark.system
NAME = "from-an-archive"
_TIMEOUT_MS = 90_000  # processes of jobs and engines start


@pytest.fixture
def archive(running: Running, tmp_path: Path) -> Iterator[str]:
    folder = REPOSITORY / "models"
    yield shutil.make_archive(str(tmp_path / NAME), "zip", folder, "tiny-chat")
    if NAME in vinery(running, "alias", "list"):
        vinery(running, "alias", "remove", "archived")
    if NAME in vinery(running, "model", "list"):
        vinery(running, "model", "remove", NAME)


def fits(admin: Administrator) -> bool:
    """Whether nothing is wider than the screen, on a phone and on a desk."""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    widths = []
    for width in (1280, 390):
        admin.page.set_viewport_size({"width": width, "height": 800})
        widths.append(int(admin.page.evaluate(wide)))
    return max(widths) <= 0


def test_a_model_of_an_archive_is_named_and_tuned(admin: Administrator, archive: str) -> None:
    page = admin.page
    page.goto(f"{admin.platform.base_url}/console/models/add/")
    follow(page.get_by_role("link", name="From an archive or GGUF file"))
    page.get_by_label("URL or path").fill("http://store/m.zip")
    follow(page.get_by_role("button", name="Fetch and serve"))
    assert "needs its SHA-256" in page.locator(".field-what .errorlist").inner_text()
    assert fits(admin)
    page.get_by_label("URL or path").fill(archive)
    follow(page.get_by_role("button", name="Fetch and serve"))
    page.locator("#state").get_by_text("Ready", exact=True).wait_for(timeout=_TIMEOUT_MS)

    follow(page.get_by_role("link", name="Other name", exact=True))
    page.get_by_label("Name:").fill("archived")
    follow(page.get_by_role("button", name="Save"))
    assert "archived is another name now." in page.inner_text("main")
    assert fits(admin)
    until(lambda: ask(admin.platform, model="archived").status_code == 200)

    follow(page.get_by_role("link", name=NAME, exact=True))
    follow(page.get_by_role("link", name="Tune", exact=True))
    page.get_by_label("Time limit in seconds").fill("10")
    follow(page.get_by_role("button", name="Start"))
    page.locator("#search").get_by_text("trial 1 of").wait_for(timeout=_TIMEOUT_MS)
    follow(page.get_by_role("link", name="Cancel the search"))
    follow(page.get_by_role("button", name="Cancel the job"))
    page.locator("#jobs").get_by_text("Cancelled", exact=True).wait_for(timeout=_TIMEOUT_MS)
    follow(page.get_by_role("link", name="Log of the tune"))
    page.get_by_text("New lines appear by themselves.").wait_for()
    assert fits(admin)
    page.goto("about:blank")  # its script would miss the model that is removed now


def test_a_checkpoint_that_cannot_be_converted_is_explained(admin: Administrator) -> None:
    page = admin.page
    page.goto(f"{admin.platform.base_url}/console/models/add/")
    follow(page.get_by_role("link", name="Convert a checkpoint"))
    page.get_by_label("Folder of the checkpoint").fill(str(REPOSITORY / "models" / "tiny-chat"))
    page.get_by_label("Name:").fill("converted")
    page.get_by_text("More options").click()
    page.get_by_label("Group size").fill("64")
    follow(page.get_by_role("button", name="Convert and serve"))
    assert "for int4 and not for int8" in page.locator(".field-group_size").inner_text()
    page.get_by_label("Precision").select_option("int4")
    follow(page.get_by_role("button", name="Convert and serve"))
    assert "holds an OpenVINO model already" in page.locator(".field-folder").inner_text()
    assert fits(admin)
