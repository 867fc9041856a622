"""The pages under `/docs/`: from this server alone, without a key, and only if they are on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from pytest_django import Settings

from vinery.web.api_docs import APIS, VIEWERS

pytestmark = pytest.mark.django_db

PAGES = [f"/docs/{api.slug}/{viewer}/" for api in APIS for viewer in VIEWERS]


def test_the_index_links_both_apis_in_both_viewers(client: Client) -> None:
    page = client.get("/docs/").content.decode()

    assert [f"/docs/{path}" for path in re.findall(r'href="([a-z]+/[a-z]+/)"', page)] == PAGES


@pytest.mark.parametrize("path", ["/docs/", *PAGES])
def test_a_page_needs_no_key_and_loads_files_of_this_server_alone(
    client: Client, path: str
) -> None:
    response = client.get(path)

    page = response.content.decode()
    assert response.status_code == 200
    assert "script-src 'self';" in response["Content-Security-Policy"]
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert files
    assert all(finders.find(file.removeprefix("/static/")) for file in files)
    assert "//" not in re.sub(r"<!DOCTYPE html>|https?://testserver", "", page).replace("://", "")
    assert "<script>" not in page


def test_the_pages_can_be_turned_off(client: Client, settings: Settings) -> None:
    settings.VINERY_DOCS = False

    assert {client.get(path).status_code for path in ("/docs/", *PAGES)} == {404}


def test_an_address_without_its_last_slash_leads_to_the_page(client: Client) -> None:
    response = client.get("/docs")

    assert (response.status_code, response["Location"]) == (301, "/docs/")


def test_the_licences_of_both_viewers_are_served(client: Client) -> None:
    for viewer in ("redoc", "swagger-ui-dist"):
        found = finders.find(f"drf_spectacular_sidecar/{viewer}/LICENSE")
        assert Path(str(found)).is_file()
