"""The pages that show both APIs, in a real browser: they render, and send requests with a key."""

from __future__ import annotations

import re

import pytest
from playwright import sync_api

from tests.browser.conftest import Administrator
from tests.system.commands import vinery

pytestmark = pytest.mark.system


def _go(someone: Administrator, path: str) -> sync_api.Page:
    # The viewers draw hundreds of operations.
    someone.page.set_default_timeout(60_000)
    someone.page.goto(f"{someone.platform.base_url}/docs/{path}")
    return someone.page


def test_the_index_leads_to_swagger_ui_and_redoc(stranger: Administrator) -> None:
    page = _go(stranger, "")
    page.get_by_role("link", name="Read it in Redoc").last.click()

    page.get_by_role("heading", name="Vinery management API").first.wait_for()
    page.get_by_role("heading", name="Create an organisation").wait_for()


@pytest.mark.parametrize(
    ("path", "title", "operation"),
    [
        ("openai/swagger/", "Vinery", "/v1/chat/completions"),
        ("management/swagger/", "Vinery management API", "organizations"),
        ("openai/redoc/", "Vinery", "temperature"),
        ("management/redoc/", "Vinery management API", "Create an organisation"),
    ],
)
def test_a_page_shows_its_api(
    stranger: Administrator, path: str, title: str, operation: str
) -> None:
    page = _go(stranger, path)

    page.get_by_role("heading", name=re.compile(title)).first.wait_for()
    page.locator("h2, h3, td, .opblock-summary-path").filter(has_text=operation).first.wait_for()


def _authorise(page: sync_api.Page, key: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    dialogue = page.locator(".dialog-ux")
    # Each scheme has a form. The management API also has one for the cookie of a session.
    form = dialogue.locator("form").filter(has=page.locator("#auth-bearer-value"))
    form.locator("input").fill(key)
    form.get_by_role("button", name="Apply credentials").click()
    dialogue.get_by_text("Logout").wait_for()
    dialogue.get_by_role("button", name="Close").first.click()


def _send(page: sync_api.Page, tag: str, method: str, path: str, body: str = "") -> str:
    """Run an operation in Swagger UI, of a closed group `tag` or of an open one. Returns the text
    of the response."""
    of_path = page.locator(f'[data-path="{path}"]')
    operation = page.locator(f".opblock-{method}").filter(has=of_path)
    if tag:
        page.locator(f"#operations-tag-{tag}").click()
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    if body:
        operation.locator("textarea.body-param__text").fill(body)
    operation.get_by_role("button", name="Execute").click()
    live = operation.locator(".live-responses-table")
    live.wait_for()
    return live.inner_text()


def test_an_authorised_call_of_the_management_api_is_answered(stranger: Administrator) -> None:
    key = vinery(stranger.platform, "key", "create", "--name", "docs", "--scope", "admin")
    page = _go(stranger, "management/swagger/")

    _authorise(page, key.strip())
    response = _send(page, "organizations", "get", "/api/organizations/")

    assert re.search(r"\b200\b", response)
    assert '"name": "default"' in response


def test_an_authorised_call_of_the_openai_api_is_answered(stranger: Administrator) -> None:
    page = _go(stranger, "openai/swagger/")
    body = (
        '{"model": "tiny-chat", "max_completion_tokens": 3, '
        '"messages": [{"role": "user", "content": "Hello!"}]}'
    )

    _authorise(page, stranger.platform.api_key)
    response = _send(page, "", "post", "/v1/chat/completions", body)

    assert re.search(r"\b200\b", response)
    assert '"object": "chat.completion"' in response
