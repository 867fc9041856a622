"""`python -m tests.browser.screenshots HOME FOLDER [PART]`: pictures of pages, to be looked at.

HOME is that of a platform that runs. Each page of pages.txt whose address has PART is drawn: light,
dark on a wide desk, and on a phone.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from playwright import sync_api

PAGES: Final = Path(__file__).with_name("pages.txt").read_text(encoding="utf-8").split()
WAYS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1920, "height": 1000}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


def main(home: Path, folder: Path, part: str = "") -> None:
    notes = json.loads((home / "bootstrap.json").read_bytes())
    base_url = notes["base_url"].removesuffix("/v1")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        session = log_in(browser, base_url, notes)
        for way, options in WAYS.items():
            context = browser.new_context(**options, storage_state=session)
            stranger = browser.new_context(**options)
            for address in (each for each in PAGES if part in each):
                own = stranger if address == "accounts/login/" else context
                page = own.new_page()
                page.goto(f"{base_url}/{address}")
                name = address.strip("/").replace("/", "_").replace("?", "_") or "start"
                page.screenshot(path=folder / f"{name}-{way}.png", full_page=True)
                page.close()
        browser.close()


def log_in(browser: sync_api.Browser, base_url: str, notes: Any) -> sync_api.StorageState:
    """The session of the first administrator."""
    page = browser.new_page()
    page.goto(f"{base_url}/console/")
    page.get_by_label("Username").fill(notes["admin_user"])
    page.get_by_label("Password").fill(notes["admin_password"])
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(f"{base_url}/console/")
    return page.context.storage_state()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
