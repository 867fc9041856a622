"""The pages that show both APIs, in a real browser: they render, and send requests with a key."""

import re

from playwright import sync_api

from tests.browser.conftest import Administrator


def test_the_index_leads_to_an_api_that_answers_authorised_calls(stranger: Administrator) -> None:
    page = stranger.go("docs/")
    page.get_by_role("link", name="Read it in Redoc").last.click()

    page.get_by_role("heading", name="Vinery management API").first.wait_for()
    page.get_by_role("heading", name="Create an organisation").wait_for()

    page = stranger.go("docs/openai/swagger/")
    body = (
        '{"model": "tiny-chat", "max_completion_tokens": 3, '
        '"messages": [{"role": "user", "content": "Hello!"}]}'
    )

    authorise(page, stranger.platform.api_key)
    response = send(page, "post", "/v1/chat/completions", body)

    assert re.search(r"\b200\b", response)
    assert '"object": "chat.completion"' in response


def authorise(page: sync_api.Page, key: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    dialogue = page.locator(".dialog-ux")
    # Each scheme has a form. The management API also has one for the cookie of a session.
    form = dialogue.locator("form").filter(has=page.locator("#auth-bearer-value"))
    form.locator("input").fill(key)
    form.get_by_role("button", name="Apply credentials").click()
    dialogue.get_by_text("Logout").wait_for()
    dialogue.get_by_role("button", name="Close").first.click()


def send(page: sync_api.Page, method: str, path: str, body: str) -> str:
    """Run an operation, and return the text of the response."""
    of_path = page.locator(f'[data-path="{path}"]')
    operation = page.locator(f".opblock-{method}").filter(has=of_path)
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.locator("textarea.body-param__text").fill(body)
    operation.get_by_role("button", name="Execute").click()
    live = operation.locator(".live-responses-table")
    live.wait_for()
    return live.inner_text()
