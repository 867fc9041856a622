"""An administrator allows hosts of media in the console, and tests a URL, on a running platform."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from PIL import Image
from playwright import sync_api

from tests.browser.conftest import Administrator, follow
from tests.conftest import REPOSITORY, Running, until
from tests.system.commands import vinery

pytestmark = pytest.mark.system

TINY_VISION = REPOSITORY / "models" / "tiny-vision"

HOST = "cdn.b\u00fccher.example"
STORED = "cdn.xn--bcher-kva.example"


def _go(admin: Administrator, path: str = "") -> sync_api.Page:
    admin.page.goto(f"{admin.platform.base_url}/console/media/{path}")
    return admin.page


def _change(page: sync_api.Page) -> None:
    row = page.locator("tr").filter(has_text=STORED)
    follow(row.get_by_role("link", name=re.compile("Change")))


@pytest.fixture
def no_rule(running: Running) -> None:
    """Other tests have written rules on the same platform."""
    for rule in json.loads(vinery(running, "media", "list", "--json")):
        vinery(running, "media", "deny", rule["what"], "--remove")


@pytest.mark.usefixtures("no_rule")
def test_a_host_is_allowed_tested_changed_and_removed(admin: Administrator) -> None:
    page = _go(admin)
    assert "Nothing is allowed until a rule allows it." in page.inner_text("main")

    follow(page.get_by_role("link", name="Allow the first host"))
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


# -- A refusal of a request


class _Picture(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        file = io.BytesIO()
        Image.new("RGB", (112, 112), "red").save(file, "PNG")
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.send_header("content-length", str(len(file.getvalue())))
        self.end_headers()
        self.wfile.write(file.getvalue())

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    """The address of a server with a picture."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Picture) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def viewer(running: Running) -> Iterator[str]:
    """The name of a vision model."""
    vinery(running, "model", "add", str(TINY_VISION), "--name", "viewer")
    vinery(running, "wait", "viewer")
    yield "viewer"
    vinery(running, "model", "remove", "viewer")
    vinery(running, "media", "deny", "127.0.0.1", "--remove")


def _answer_about(running: Running, model: str, url: str) -> httpx.Response:
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return httpx.post(
        f"{running.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {running.api_key}"},
        json={
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_completion_tokens": 4,
        },
        timeout=60,
    )


def _code(response: httpx.Response) -> str:
    return str(response.json().get("error", {}).get("code"))


def _allow_refused(admin: Administrator, host: str, reason: str) -> None:
    """Find the refusal of the host with this reason, and save the rule that is proposed."""

    def is_listed() -> bool:
        row = _go(admin).locator("tr").filter(has_text=host).filter(has_text=reason)
        return row.count() == 1

    until(is_listed, timeout_s=20)
    row = admin.page.locator("tr").filter(has_text=host).filter(has_text=reason)
    follow(row.get_by_role("link", name=f"Allow {host}"))
    follow(admin.page.get_by_role("button", name="Save"))
    assert "It is in force within a second." in admin.page.inner_text("main")


def test_what_was_refused_is_allowed_by_one_click_for_each_reason(
    admin: Administrator, running: Running, viewer: str, host: str
) -> None:
    url = f"{host}/red.png"
    until(lambda: _code(_answer_about(running, viewer, url)) == "media_denied", timeout_s=60)

    _allow_refused(admin, host, "No rule of the platform allows it.")
    until(
        lambda: "not public" in _answer_about(running, viewer, url).json()["error"]["message"],
        timeout_s=10,
    )
    _allow_refused(admin, host, "The address 127.0.0.1 is not public.")
    until(lambda: _answer_about(running, viewer, url).status_code == 200, timeout_s=10)

    answer = _answer_about(running, viewer, url).json()
    assert answer["usage"]["prompt_tokens_details"]["image_tokens"] == 16
    row = _go(admin).locator("tr").filter(has_text=host).filter(has_text="No rule of")
    assert "allowed now" in row.inner_text()


# -- The tester


def _test(admin: Administrator, url: str, model: str) -> sync_api.Page:
    """Test a URL for any caller by the keyboard alone."""
    page = _go(admin, "test/")
    _focus(page, page.get_by_label("URL or path"))
    page.keyboard.type(url)
    page.get_by_label("Vision model").select_option(model)
    page.get_by_label("For a request of").select_option(label="The whole platform")
    with page.expect_navigation():
        page.get_by_label("URL or path").press("Enter")
    return page


def _focus(page: sync_api.Page, wanted: sync_api.Locator) -> None:
    """Move the focus by the keyboard until this element has it."""
    for _ in range(60):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached with the keyboard")


def _steps(page: sync_api.Page) -> dict[str, str]:
    """Return the details of each step by its name, with the result of the last one."""
    rows = page.locator("section[aria-labelledby=result] tbody tr").all()
    cells = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]
    return {name: f"{result}: {details}" for name, result, details in cells}


def _allow_by_keyboard(page: sync_api.Page, host: str) -> None:
    _focus(page, page.get_by_role("link", name=f"Allow {host}"))
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert f"{host} was refused." in page.inner_text("main")
    assert _fits(page)
    _focus(page, page.get_by_role("button", name="Save"))
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "It is in force within a second." in page.inner_text("main")
    assert _fits(page)


def _fits(page: sync_api.Page) -> bool:
    """Return whether nothing is wider than the screen."""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(wide)) <= 0


@pytest.mark.parametrize("width", [390, 1280])
def test_the_tester_shows_each_step_and_allows_what_it_refused_by_the_keyboard(
    admin: Administrator, viewer: str, host: str, width: int
) -> None:
    admin.page.set_viewport_size({"width": width, "height": 844})
    url = f"{host}/{'long' * 80}.png?token=secret"

    page = _test(admin, url, viewer)
    assert page.title().startswith("Refused: ")
    assert f"refused: The media rules of the platform do not allow {host}" in _steps(page)["Denied"]
    assert _fits(page)
    _allow_by_keyboard(page, host)

    page = _test(admin, url, viewer)
    assert "(loopback)" in _steps(page)["Denied"]
    _allow_by_keyboard(page, host)

    page = _test(admin, url, viewer)
    assert page.title().startswith("Allowed: ")
    steps = _steps(page)
    assert list(steps) == ["Rule", "Addresses", "Response", "Bytes", "Decoding", "Tokens"]
    assert all(step.startswith("ok: ") for step in steps.values())
    assert "127.0.0.1" in steps["Addresses"]
    assert "image/png" in steps["Response"]
    assert "picture of 112 x 112 pixels" in steps["Decoding"]
    assert f"{viewer} sees 112 x 112 pixels: 16 tokens" in steps["Tokens"]
    assert page.get_by_role("link", name=f"Allow {host}").count() == 0
    assert _fits(page)


def test_media_pages_fit_on_a_phone(admin: Administrator, running: Running) -> None:
    long = f"{'sub-domain.' * 20}example.org"
    vinery(running, "media", "allow", long, "--note", "word" * 40)
    admin.page.set_viewport_size({"width": 390, "height": 844})
    try:
        for path in ("", "rules/new/", "folders/new/", "limits/new/", "test/"):
            assert _fits(_go(admin, path)), path
            for more in admin.page.locator("summary").all():
                more.click()
            assert _fits(admin.page), path
    finally:
        vinery(running, "media", "deny", long, "--remove")
