"""Pages of an unavailable database (503 in the format of each path) and of an unknown host name."""

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import DataError, OperationalError, connection
from django.test import Client

from tests.tables import table
from vinery_accounts.models import User
from vinery_platform.web.middleware import ask_whether_unavailable

PAGES = ("/", "/admin/", "/accounts/login/", "/console/", "/docs/")


@pytest.fixture
def noticed() -> Iterator[None]:
    ask_whether_unavailable(lambda: True)
    yield
    ask_whether_unavailable(None)


def no_query(*_: object) -> None:
    raise AssertionError("the database was asked")


def result(response: Any, status: int = 503) -> str:
    assert response.status_code == status
    assert response.headers.get("Retry-After") == ("5" if status == 503 else None)
    text: str = response.content.decode()
    assert ("The database does not answer" in text) is (status == 503)
    return text


@pytest.mark.usefixtures("noticed")
@pytest.mark.django_db
@table("path", PAGES)
def test_a_page_is_refused_with_the_usual_headers_without_asking_the_database(path: str) -> None:
    with connection.execute_wrapper(no_query):
        response = Client().get(path)

    text = result(response)
    assert "<h1>The database does not answer</h1>" in text or path == "/console/"
    assert 'href="/static/' in text
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.usefixtures("noticed")
@pytest.mark.django_db
def test_api_clients_get_json_without_asking_the_database() -> None:
    with connection.execute_wrapper(no_query):
        response = Client().get("/api/keys/", headers={"authorization": "Bearer vny_live_x"})
        assert Client().get("/nothing/").status_code == 404, "it needs no database"

    assert result(response)
    assert response.json()["error"]["code"] == "unavailable"


@pytest.fixture
def visitor(db: None) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    return client


@table(
    "reader",
    [
        "django.contrib.auth.get_user",
        "django.contrib.sessions.backends.db.SessionStore._get_session_from_db",
    ],
)
@table("path", ["/admin/", "/accounts/", "/", "/console/", "/api/keys/"])
def test_the_first_page_that_meets_the_failure_reports_it(
    visitor: Client, monkeypatch: pytest.MonkeyPatch, reader: str, path: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reader, Mock(side_effect=OperationalError("secret of mine")))

        assert "secret of mine" not in result(visitor.get(path))


def test_another_error_is_a_server_error(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django.contrib.auth.get_user", Mock(side_effect=DataError("secret of mine"))
    )

    assert "secret of mine" not in result(visitor.get("/admin/"), 500)


@table("path", ["/", "/console/", "/accounts/login/", "/admin/login/"])
def test_a_page_of_an_unknown_host_names_the_settings(path: str, client: Client, db: None) -> None:
    response = client.get(path, headers={"host": "vinery.example"})

    assert response.status_code == 400
    page = response.content.decode()
    assert "VINERY_PUBLIC_URL" in page
    assert "VINERY_ALLOWED_HOSTS" in page
    assert response["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/api/me"])
def test_an_unknown_host_name_is_logged_in_one_warning_without_a_stack(
    path: str, client: Client, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    client.get(path, headers={"host": "vinery.example"})

    [record] = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert "VINERY_ALLOWED_HOSTS" in record.getMessage()
    assert vars(record)["fields"] == {"host": "vinery.example"}
