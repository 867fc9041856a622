"""A host name that the server does not accept, in the browser."""

import logging

import pytest
from django.test import Client

from tests.tables import table


@table("path", ["/", "/console/", "/accounts/login/", "/admin/login/"])
def test_a_page_under_an_unknown_host_name_names_the_settings(
    path: str, client: Client, db: None
) -> None:
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
