"""`python -m docs.guide_pictures HOME`: the pictures of docs/guide.

HOME is that of a platform that runs, with the figures of `vinery demo-data`.
"""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Final

import httpx
from PIL import Image
from playwright import sync_api

FOLDER: Final = Path(__file__).parent / "guide" / "pictures"
_SIZE: Final = sync_api.ViewportSize(width=1280, height=760)
_COLOURS: Final = 64


def _key(page: sync_api.Page) -> None:
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("button", name="Create").click()
    page.locator("#secret").wait_for()


def _ask(page: sync_api.Page) -> None:
    page.get_by_label("Your message").fill("What is the capital of France?")
    page.get_by_role("button", name="Send").click()
    page.locator(".answer").get_by_text("first token after").wait_for()


def _invite(page: sync_api.Page) -> None:
    page.get_by_label("User name").fill("grace")
    page.get_by_label("E-mail").fill("grace@example.org")


def _see(page: sync_api.Page) -> None:
    page.wait_for_load_state("networkidle")


def _open_first(page: sync_api.Page) -> None:
    page.locator("tbody th a").first.click()
    page.get_by_role("heading", name="How it ended").wait_for()


# By the name of the picture: the address, and what a person does there.
_PICTURES: Final[dict[str, tuple[str, Callable[[sync_api.Page], None]]]] = {
    "key": ("keys/new/", _key),
    "playground": ("playground/?model=tiny-chat", _ask),
    "usage": ("usage/?by=user&period=30d", _see),
    "requests": ("requests/?period=30d&error=rate_limit_exceeded", _see),
    "refused": ("requests/?period=30d&error=rate_limit_exceeded", _open_first),
    "invite": ("members/new/", _invite),
    "limits": ("limits/", _see),
    "model": ("models/add/", _see),
    "live": ("live/", lambda page: page.locator("tbody tr").first.wait_for()),
}


def _keep_busy(base_url: str, key: str) -> None:
    """Let a request run that the page of running requests shows."""
    body = {"model": "tiny-chat", "prompt": "Once upon a time", "max_tokens": 1500, "n": 8}
    headers = {"Authorization": f"Bearer {key}"}
    more = {"ignore_eos": True, "stream": True}
    httpx.post(f"{base_url}/v1/completions", json=body | more, headers=headers, timeout=300)


def log_in(browser: sync_api.Browser, base_url: str, notes: Any) -> sync_api.StorageState:
    """The session of the first administrator."""
    page = browser.new_page()
    page.goto(f"{base_url}/console/")
    page.get_by_label("Username").fill(notes["admin_user"])
    page.get_by_label("Password").fill(notes["admin_password"])
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(f"{base_url}/console/")
    return page.context.storage_state()


def main(home: Path, *names: str) -> None:
    notes = json.loads((home / "bootstrap.json").read_bytes())
    base_url = notes["base_url"].removesuffix("/v1")
    FOLDER.mkdir(exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        session = log_in(browser, base_url, notes)
        page = browser.new_context(viewport=_SIZE, storage_state=session).new_page()
        for name, (address, act) in _PICTURES.items():
            if names and name not in names:
                continue
            if name == "live":
                Thread(target=_keep_busy, args=(base_url, notes["api_key"]), daemon=True).start()
            page.goto(f"{base_url}/console/{address}")
            act(page)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(_COLOURS).save(FOLDER / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
