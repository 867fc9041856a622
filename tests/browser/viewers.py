"""Swagger UI in a browser: a key for its calls, and a call."""

import re

from playwright import sync_api


def authorise(page: sync_api.Page, key: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    dialogue = page.locator(".dialog-ux")
    # Each scheme has a form. The management API also has one for the cookie of a session.
    form = dialogue.locator("form").filter(has=page.locator("#auth-bearer-value"))
    form.locator("input").fill(key)
    form.get_by_role("button", name="Apply credentials").click()
    dialogue.get_by_text("Logout").wait_for()
    dialogue.get_by_role("button", name="Close").first.click()


def send(page: sync_api.Page, method: str, path: str, *, tag: str = "", body: str = "") -> str:
    """Run an operation, of a closed group `tag` or of an open one. Returns the text of the
    response."""
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


def is_ok(response: str) -> bool:
    return re.search(r"\b200\b", response) is not None
