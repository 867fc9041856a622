"""Error pages of the console have the console's layout and security headers, and advice."""

from html import unescape
from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError
from django.test import Client

from tests.tables import table
from vinery_accounts.console.overview import Overview
from vinery_accounts.models import User

pytestmark = pytest.mark.django_db


def signed_in(user: User, **more: Any) -> Client:
    client = Client(raise_request_exception=False, **more)
    client.force_login(user)
    return client


def console_page(response: Any, status: int) -> str:
    """Return the text of a page after a check of the console's headers and layout."""
    assert response.status_code == status
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "no-store" in response.headers["Cache-Control"]
    text = unescape(response.content.decode())
    assert 'rel="stylesheet" href="/static/console/console' in text
    assert 'href="/console/">To the overview</a>' in text
    assert "style=" not in text
    return text


def test_a_missing_page_is_404_and_a_forbidden_one_403_each_in_its_own_layout(alice: User) -> None:
    for path in ("nothing/", "limits/999/", "keys/999/revoke/", "limits/x/"):
        text = console_page(signed_in(alice).get(f"/console/{path}"), 404)
        assert "There is no such page" in text
        assert "alice</a>" in text
        assert "999" not in text
    assert "Log out" not in console_page(Client().get("/console/nothing/"), 404)

    text = console_page(signed_in(alice).get("/console/limits/new/"), 403)
    assert "You may not do this" in text

    client = signed_in(alice, enforce_csrf_checks=True)
    text = console_page(client.post("/console/keys/new/", {"name": "x"}), 403)
    assert "open for too long" in text

    client = signed_in(alice, enforce_csrf_checks=True)
    assert client.get("/api/nothing").headers["Content-Type"] == "application/json"
    console_page(client.get("/accounts/nothing/"), 404)
    assert "open for too long" in console_page(client.post("/accounts/logout/"), 403)


@table(
    "raised, status",
    [
        (RuntimeError("secret of mine"), 500),
        (OperationalError("secret of mine"), 503),
        (SuspiciousOperation("secret of mine"), 400),
    ],
)
def test_a_broken_page_is_500(
    alice: User, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise raised

    client = signed_in(alice)
    monkeypatch.setattr(Overview, "get_context_data", broken)

    text = console_page(client.get("/console/"), status)

    assert "secret of mine" not in text
    assert ("Try again</a>" in text) is (status >= 500)
