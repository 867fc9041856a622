"""A real browser, logged in as the administrator, that complains when a page does.

Skips without Chromium, which is no Python package: on Debian, `apt-get install chromium`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from playwright import sync_api

from tests.conftest import REPOSITORY, Running
from tests.system.clients import chat, vinery

TINY_CHAT: Final = REPOSITORY / "models" / "tiny-chat"
DESK: Final = sync_api.ViewportSize(width=1280, height=800)
PHONE: Final = sync_api.ViewportSize(width=360, height=740)
# A job starts a process, and then an engine; pages take a hundredth of that time on a busy machine.
_TIMEOUT_MS: Final = 90_000
FITS: Final = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


class Administrator:
    """One person at one browser, and all errors there."""

    def __init__(self, page: sync_api.Page, platform: Running) -> None:
        self.page = page
        self.platform = platform
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"JavaScript: {error}"))
        page.on("console", self._hear)
        page.on("requestfailed", lambda request: self._note(request.url, request.failure))
        page.on("response", self._check_status)

    def go(self, path: str) -> sync_api.Page:
        """Open a page of the platform, such as `console/keys/`."""
        self.page.goto(f"{self.platform.base_url}/{path}")
        return self.page

    def visit(self, path: str) -> None:
        """Open a page of the admin, such as `serving/servedmodel/`."""
        self.go(f"admin/{path}")

    def log_in(self, name: str | None = None, password: str | None = None) -> None:
        """Log in on the login page, wherever it has come up."""
        self.page.get_by_label("Username").fill(name or self.platform.admin_user)
        self.page.get_by_label("Password").fill(password or self.platform.admin_password)
        self.press("Log in")

    def press(self, button: str) -> None:
        """Press the button of this name, and see the page that it leads to."""
        follow(self.page.get_by_role("button", name=button, exact=True))

    def follow(self, link: str) -> None:
        """Click the link of this name, and see its page."""
        follow(self.page.get_by_role("link", name=link, exact=True))

    def focus(self, wanted: sync_api.Locator) -> None:
        """Move the focus by the keyboard until this element has it."""
        for _ in range(120):
            if wanted.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{wanted} cannot be reached with the keyboard")

    def enter(self, wanted: sync_api.Locator) -> None:
        """Press Enter on a link or button, by the keyboard alone, and see the page it leads to."""
        self.focus(wanted)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def fits(self) -> bool:
        """Whether nothing has to be scrolled sideways, at a desk and on a phone."""
        self.page.wait_for_load_state()  # a page that has just been left has no document
        before, fitting = self.page.viewport_size, []
        for size in (DESK, PHONE):
            self.page.set_viewport_size(size)
            fitting.append(self._becomes(FITS))
        self.page.set_viewport_size(before or DESK)
        return all(fitting)

    def _becomes(self, condition: str) -> bool:
        """Charts are drawn again after a change of the size, and not at once. The policy of pages
        forbids `wait_for_function`, which evaluates text in the page."""
        for _ in range(100):
            if self.page.evaluate(condition):
                return True
            self.page.wait_for_timeout(100)
        return False

    def main(self) -> str:
        """The text of a page of the console."""
        return self.page.inner_text("main")

    def wait_for_message(self, text: str) -> None:
        """Wait for the page's message about the last action."""
        self.page.get_by_role("status").get_by_text(text).wait_for()

    def _hear(self, message: sync_api.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _check_status(self, response: sync_api.Response) -> None:
        if response.status >= 400:
            self._note(response.url, f"status {response.status}")

    def _note(self, url: str, problem: str | None) -> None:
        # A page that is left ends its requests without a failure.
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
    with someone_at(chromium, running) as someone:
        yield someone


@contextmanager
def someone_at(
    browser: sync_api.Browser, platform: Running, **options: Any
) -> Iterator[Administrator]:
    """A person with a separate window, which keeps nothing. Fails when a page had errors."""
    context = browser.new_context(**{"viewport": DESK, **options})
    context.set_default_timeout(_TIMEOUT_MS)
    someone = Administrator(context.new_page(), platform)
    yield someone
    context.close()
    assert someone.complaints == []


@pytest.fixture(scope="package")
def session(chromium: sync_api.Browser, running: Running) -> sync_api.StorageState:
    """The session of a login. Hashing a password is slow by design: once is enough."""
    with someone_at(chromium, running) as someone:
        someone.visit("")
        someone.log_in()
        return someone.page.context.storage_state()


@pytest.fixture
def admin(
    chromium: sync_api.Browser, running: Running, session: sync_api.StorageState
) -> Iterator[Administrator]:
    """The administrator, logged in. Fails when a page had errors."""
    with someone_at(chromium, running, storage_state=session) as someone:
        yield someone


def follow(link: sync_api.Locator) -> None:
    """Click what leads to another page, and wait until all of that page is loaded.

    A click alone returns when the other page begins, before its content is there.
    """
    with link.page.expect_navigation():
        link.click()


@contextmanager
def removed_after(platform: Running, model: str) -> Iterator[None]:
    """Remove this model after the test, whatever the test does."""
    try:
        yield
    finally:
        if model in vinery(platform, "model", "list"):
            vinery(platform, "model", "remove", model)


def ask(platform: Running, model: str = "tiny-chat", content: Any = "Hello!") -> httpx.Response:
    """A short answer of tiny-chat, or of another model."""
    return chat(platform, content, model=model, max_completion_tokens=5)
