"""Every page for everyone: axe finds no serious hindrance in light and dark, and a first visit is
sent in at most 150 KB. Django's own forms of the admin are left out."""

from importlib.resources import files
from typing import Any, Final

import pytest

from tests.browser.conftest import Administrator
from tests.browser.test_pages_in_browser import PAGES

pytest.importorskip("axe_playwright_python", reason="axe is not installed: make install-dev")

_MAX_BYTES: Final = 150_000
_AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_SERIOUS: Final = """async (rules) => {
    const found = await axe.run(document, { resultTypes: ["violations"], ...rules });
    return found.violations
        .filter((each) => ["serious", "critical"].includes(each.impact))
        .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" ")}`);
}"""


@pytest.mark.timeout(900)
def test_every_page_is_light_and_open_to_all_readers(
    admin: Administrator, stranger: Administrator
) -> None:
    own, of_all = _Look(admin), _Look(stranger)
    for path in (each for each in PAGES if not each.startswith("admin/")):
        (of_all if path == "accounts/login/" else own).at(path)

    assert own.hindrances + of_all.hindrances == []
    sizes = own.sizes | of_all.sizes
    assert {path: size for path, size in sizes.items() if size > _MAX_BYTES} == {}
    assert min(sizes.values()) > 1000, "nothing was counted"


class _Look:
    """What a reader finds on pages, each as on the first visit."""

    def __init__(self, reader: Administrator) -> None:
        self.reader = reader
        self.hindrances: list[str] = []
        self.sizes: dict[str, int] = {}
        self._num_bytes = 0
        network = reader.page.context.new_cdp_session(reader.page)
        network.send("Network.enable")
        network.send("Network.setCacheDisabled", {"cacheDisabled": True})
        network.on("Network.loadingFinished", self._count)

    def at(self, path: str) -> None:
        self._num_bytes, page = 0, self.reader.page
        page.emulate_media(color_scheme="light")
        self.reader.go(path).wait_for_load_state()
        self.sizes[path] = self._num_bytes
        page.evaluate(_AXE)
        found = page.evaluate(_SERIOUS, {})
        # A change of the scheme changes colours alone.
        page.emulate_media(color_scheme="dark")
        found += page.evaluate(_SERIOUS, {"runOnly": ["color-contrast"]})
        self.hindrances += [f"{path}: {each}" for each in found]

    def _count(self, event: dict[str, Any]) -> None:
        self._num_bytes += int(event["encodedDataLength"])
