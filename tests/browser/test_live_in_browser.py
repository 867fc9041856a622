"""A person watches the requests that run now, and stops one of them with a reason."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator
from tests.conftest import until
from tests.system.clients import openai_of

ENDLESS: Any = {"model": "tiny-chat", "prompt": "Once", "max_tokens": 1900, "n": 16}
ENDLESS |= {"extra_body": {"ignore_eos": True}, "stream": True}
SELECT = "getSelection().selectAllChildren(document.querySelector('#requests td.figure'))"


def fetched(page: sync_api.Page) -> None:
    """Wait until the page has fetched its parts twice: the first fetch is replaced then."""
    for _ in range(2):
        with page.expect_response(lambda response: "x-live" in response.request.headers):
            """The stream of events asks for it."""


def test_a_live_request_is_seen_without_a_reload_and_stopped(admin: Administrator) -> None:
    page = admin.go("console/live/")
    page.get_by_text("No request runs now.").wait_for()

    def read() -> None:
        list(openai_of(admin.platform).completions.create(**ENDLESS))

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(read)
        tokens = page.locator("#requests tbody [data-name=Tokens]")
        page.get_by_text("Generating").wait_for()
        assert admin.fits()

        page.evaluate(SELECT)  # what is selected stays
        kept = tokens.inner_text()
        fetched(page)
        assert tokens.inner_text() == kept
        page.evaluate("getSelection().empty()")
        until(lambda: tokens.inner_text() != kept)

        admin.follow(str(page.locator("#requests tbody a").get_attribute("aria-label")))
        page.get_by_label("Reason").fill("It loops.")
        assert admin.fits()
        admin.press("Stop the request")
        assert "The request is stopped." in admin.main()
        with pytest.raises(openai.APIError, match="stopped by an administrator: It loops"):
            answer.result(60)
    page.get_by_text("No request runs now.").wait_for()


def test_a_live_page_says_that_the_server_does_not_answer_and_goes_on_by_itself(
    admin: Administrator,
) -> None:
    page = admin.go("console/live/")
    fetched(page)
    lost = page.get_by_role("alert").filter(has_text="so this page is old")
    assert not lost.is_visible()

    page.context.set_offline(True)
    lost.wait_for()
    assert admin.fits()

    page.context.set_offline(False)
    lost.wait_for(state="hidden")
    fetched(page)
    admin.complaints.clear()  # of the time without the server
