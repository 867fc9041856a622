"""Where the console has no page, what people get is one of the console: in its look, with its
headers, and with advice."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SuspiciousOperation
from django.db import DataError, InterfaceError, OperationalError, connections
from django.test import AsyncClient, Client

from accounts.console.overview import Overview
from accounts.models import User

pytestmark = pytest.mark.django_db


def signed_in(user: User, **more: Any) -> Client:
    client = Client(**more)
    client.force_login(user)
    return client


def result(response: Any, status: int) -> str:
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
    text = result(signed_in(alice).get(f"/console/{path}"), 404)

    assert "There is no such page" in text
    assert ">alice</a>" in text
    assert "999" not in text


def test_a_page_that_is_not_there_for_a_user_who_has_not_signed_in() -> None:
    text = result(Client().get("/console/nothing/"), 404)

    assert "Log out" not in text


def test_a_page_that_one_may_not_see(alice: User) -> None:
    text = result(signed_in(alice).get("/console/limits/new/"), 403)

    assert "You may not do this" in text


def test_a_form_that_was_open_for_too_long(alice: User) -> None:
    client = signed_in(alice, enforce_csrf_checks=True)

    text = result(client.post("/console/keys/new/", {"name": "x"}), 403)

    assert "open for too long" in text


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (RuntimeError("secret of mine"), 500),
        (DataError("secret of mine"), 500),
        (OperationalError("secret of mine"), 503),
        (InterfaceError("secret of mine"), 503),
        (SuspiciousOperation("secret of mine"), 400),
    ],
)
def test_a_page_that_breaks(
    alice: User, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise raised

    client = signed_in(alice, raise_request_exception=False)
    monkeypatch.setattr(Overview, "get_context_data", broken)

    text = result(client.get("/console/"), status)

    assert "secret of mine" not in text


def _unavailable(*_: Any, **__: Any) -> None:
    raise OperationalError("the database is away")


# Who looks, and even whether another user does, is a row, too.
@pytest.mark.parametrize(
    "reader",
    [
        "django.contrib.auth.get_user",
        "django.contrib.sessions.backends.db.SessionStore._get_session_from_db",
    ],
)
def test_while_the_database_is_unavailable_every_page_shows_so(
    alice: User, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    client = signed_in(alice, raise_request_exception=False)
    monkeypatch.setattr(reader, _unavailable)

    for path in ("", "keys/", "limits/"):
        text = result(client.get(f"/console/{path}"), 503)
        assert "The database does not answer" in text
    result(client.post("/console/keys/new/", {"name": "x"}), 503)


@pytest.mark.django_db(transaction=True)
async def test_it_shows_so_in_the_server_s_asynchronous_way_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = AsyncClient(raise_request_exception=False)
    await client.aforce_login(await sync_to_async(User.objects.create_user)("alice"))
    monkeypatch.setattr("django.contrib.auth.get_user", _unavailable)

    response = await client.get("/console/")
    # Of the thread in which all that went on: PostgreSQL drops no database that is in use.
    await sync_to_async(connections.close_all)()

    assert "The database does not answer" in result(response, 503)


def test_other_pages_keep_their_own(alice: User) -> None:
    client = signed_in(alice, enforce_csrf_checks=True)

    assert client.get("/api/nothing").headers["Content-Type"] == "application/json"
    assert "console.css" not in client.get("/accounts/nothing/").content.decode()
    refused = client.post("/accounts/logout/")
    assert refused.status_code == 403
    assert "console.css" not in refused.content.decode()
