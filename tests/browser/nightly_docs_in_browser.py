"""Each API in each viewer renders, and a call of the management API is answered."""

import re

import pytest

from tests.browser import viewers
from tests.browser.conftest import Administrator
from tests.system.clients import vinery

pytestmark = pytest.mark.system


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
    page = stranger.go(f"docs/{path}")

    page.get_by_role("heading", name=re.compile(title)).first.wait_for()
    page.locator("h2, h3, td, .opblock-summary-path").filter(has_text=operation).first.wait_for()


def test_an_authorised_call_of_the_management_api_is_answered(stranger: Administrator) -> None:
    key = vinery(stranger.platform, "key", "create", "--name", "docs", "--scope", "admin")
    page = stranger.go("docs/management/swagger/")

    viewers.authorise(page, key.strip())
    response = viewers.send(page, "get", "/api/organizations/", tag="organizations")

    assert viewers.is_ok(response)
    assert '"name": "default"' in response
