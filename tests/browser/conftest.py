"""A real browser, logged in as the administrator, that complains when a page does.

Skips without Chromium, which is no Python package: on Debian, `apt-get install chromium`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from playwright import sync_api

from tests.conftest import Running, until
from tests.system.commands import vinery

_TIMEOUT_MS = 15_000  # the slowest page takes a tenth of it on a busy machine


class Administrator:
    """One person at one browser, and everything that went wrong in it."""

    def __init__(self, page: sync_api.Page, platform: Running) -> None:
        self.page = page
        self.platform = platform
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"JavaScript: {error}"))
        page.on("console", self._hear)
        page.on("requestfailed", lambda request: self._note(request.url, request.failure))
        page.on("response", self._look_at)

    def visit(self, path: str) -> None:
        """Open a page of the admin, such as `serving/servedmodel/`."""
        self.page.goto(f"{self.platform.base_url}/admin/{path}")

    def log_in(self) -> None:
        """From wherever the login page has come up."""
        self.page.get_by_label("Username").fill(self.platform.admin_user)
        self.page.get_by_label("Password").fill(self.platform.admin_password)
        follow(self.page.get_by_role("button", name="Log in"))
        self.page.get_by_text("Log out").wait_for()

    def save(self) -> None:
        """Press the first button of a form, and see the page that it leads to."""
        follow(self.page.get_by_role("button", name="Save", exact=True))

    def row(self, text: str) -> sync_api.Locator:
        """The row of a list with a cell of exactly this text."""
        cell = self.page.locator("th, td").get_by_text(text, exact=True)
        return self.page.locator("#result_list tbody tr").filter(has=cell)

    def act_on(self, text: str, action: str) -> None:
        """Choose an action of a list for one row, and run it."""
        self.row(text).locator("input.action-select").check()
        self.page.get_by_label("Action:").select_option(label=action)
        follow(self.page.get_by_role("button", name="Go"))

    def messages(self) -> str:
        """The message of the page about the last action."""
        return self.page.locator("ul.messagelist").inner_text()

    def error_at(self, field: str) -> str:
        """The error of a form at one field."""
        return self.page.locator(f".form-row.field-{field} .errorlist").inner_text()

    def _hear(self, message: sync_api.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _look_at(self, response: sync_api.Response) -> None:
        if response.status >= 400:
            self._note(response.url, f"status {response.status}")

    def _note(self, url: str, problem: str | None) -> None:
        # A page that is left ends its requests: that is no failure.
        if problem != "net::ERR_ABORTED":
            self.complaints.append(f"{urlsplit(url).path}: {problem}")


# Not for the whole session: Playwright keeps an event loop running in this thread, in which
# no asynchronous test of another package could run.
@pytest.fixture(scope="package")
def chromium() -> Iterator[sync_api.Browser]:
    """The browser of this machine: one for all tests, because starting it takes a second."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        # Containers have no namespaces for its sandbox, and little shared memory. The pages
        # are our own.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def stranger(chromium: sync_api.Browser, running: Running) -> Iterator[Administrator]:
    """The administrator, not yet logged in. Fails when a page had errors."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(_TIMEOUT_MS)
    someone = Administrator(context.new_page(), running)
    yield someone
    context.close()
    assert someone.complaints == []


@pytest.fixture(scope="package")
def session_cookies(chromium: sync_api.Browser, running: Running) -> list[sync_api.Cookie]:
    """Those of a login. Hashing a password is slow by design: once is enough."""
    context = chromium.new_context()
    someone = Administrator(context.new_page(), running)
    someone.visit("")
    someone.log_in()
    cookies = context.cookies()
    context.close()
    return cookies


@pytest.fixture
def admin(stranger: Administrator, session_cookies: list[sync_api.Cookie]) -> Administrator:
    """The administrator, logged in."""
    stranger.page.context.add_cookies(session_cookies)
    return stranger


@pytest.fixture
def loaded_again(running: Running) -> Iterator[None]:
    """Afterwards tiny-chat answers, whatever the test did to it."""
    yield
    vinery(running, "model", "load", "tiny-chat")
    until(lambda: ask(running).status_code == 200)


def follow(link: sync_api.Locator) -> None:
    """Click what leads to another page, and wait until all of that page is loaded.

    A click alone returns when the other page begins: what it will show is not there yet.
    """
    with link.page.expect_navigation():
        link.click()


def ask(platform: Running, key: str | None = None, model: str = "tiny-chat") -> httpx.Response:
    """A short answer of tiny-chat, or of another model."""
    return httpx.post(
        f"{platform.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key or platform.api_key}"},
        json={
            "model": model,
            "messages": [{"role": "user", "content": "Hello!"}],
            "max_completion_tokens": 5,
        },
        timeout=30.0,
    )
