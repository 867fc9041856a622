"""The pages that show both APIs, in a real browser: they render, and send requests with a key.

Each API in each viewer, and a call of the management API, are tried each night. The viewers draw
hundreds of operations.
"""

import pytest

from tests.browser import viewers
from tests.browser.conftest import Administrator

pytestmark = pytest.mark.system


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

    viewers.authorise(page, stranger.platform.api_key)
    response = viewers.send(page, "post", "/v1/chat/completions", body=body)

    assert viewers.is_ok(response)
    assert '"object": "chat.completion"' in response
