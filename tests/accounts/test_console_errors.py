"""Where the console has no page, what people get is one of the console: in its look, with its
headers, and with advice."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError
from django.test import Client

from accounts.console.overview import Overview
from accounts.models import User

pytestmark = pytest.mark.django_db


def signed_in(user: User, **more: Any) -> Client:
    client = Client(**more)
    client.force_login(user)
    return client


def told(response: Any, status: int) -> str:
    """The page, which has what all pages of the console have."""
    assert response.status_code == status
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "no-store" in response.headers["Cache-Control"]
    text = unescape(response.content.decode())
    assert 'rel="stylesheet" href="/static/console/console' in text
    assert '<a href="/console/keys/">Keys</a>' in text
    assert "style=" not in text
    return text


@pytest.mark.parametrize("path", ["nothing/", "limits/999/", "keys/999/revoke/", "limits/x/"])
def test_a_page_that_is_not_there(alice: User, path: str) -> None:
    text = told(signed_in(alice).get(f"/console/{path}"), 404)

    assert "There is no such page" in text
    assert ">alice</a>" in text
    assert "999" not in text


def test_a_page_that_is_not_there_for_whoever_has_not_signed_in() -> None:
    text = told(Client().get("/console/nothing/"), 404)

    assert "Log out" not in text


def test_a_page_that_one_may_not_see(alice: User) -> None:
    text = told(signed_in(alice).get("/console/limits/new/"), 403)

    assert "You may not do this" in text


def test_a_form_that_was_open_for_too_long(alice: User) -> None:
    client = signed_in(alice, enforce_csrf_checks=True)

    text = told(client.post("/console/keys/new/", {"name": "x"}), 403)

    assert "open for too long" in text


@pytest.mark.parametrize(
    ("raised", "status"),
    [(OperationalError("secret of mine"), 500), (SuspiciousOperation("x"), 400)],
)
def test_a_page_that_breaks(
    alice: User, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise raised

    client = signed_in(alice, raise_request_exception=False)
    monkeypatch.setattr(Overview, "get_context_data", broken)

    text = told(client.get("/console/"), status)

    assert "secret of mine" not in text


def test_a_page_breaks_in_the_same_way_where_nobody_knows_who_looks(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("the database is away")

    client = signed_in(alice, raise_request_exception=False)
    monkeypatch.setattr("django.contrib.auth.get_user", away)

    assert "Something broke here" in told(client.get("/console/"), 500)


def test_other_pages_keep_their_own(alice: User) -> None:
    client = signed_in(alice, enforce_csrf_checks=True)

    assert client.get("/api/nothing").headers["Content-Type"] == "application/json"
    assert "console.css" not in client.get("/accounts/nothing/").content.decode()
    refused = client.post("/accounts/logout/")
    assert refused.status_code == 403
    assert "console.css" not in refused.content.decode()
