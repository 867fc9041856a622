"""The pages under `/docs/`: from this server alone, without a key, and only if they are on."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import include, path
from pytest_django import Settings

from tests.tables import table
from vinery_accounts.models import User
from vinery_platform import urls
from vinery_platform.urls import APIS, VIEWERS, pages

pytestmark = pytest.mark.django_db

PAGES = [f"/docs/{api.slug}/{viewer}/" for api in APIS for viewer in VIEWERS]


def test_the_index_links_both_apis_in_both_viewers(client: Client) -> None:
    page = client.get("/docs/").content.decode()

    assert [f"/docs/{path}" for path in re.findall(r'href="([a-z]+/[a-z]+/)"', page)] == PAGES
    redirect = client.get("/docs")
    assert (redirect.status_code, redirect["Location"]) == (301, "/docs/")
    for viewer in ("redoc", "swagger-ui-dist"):
        assert Path(str(finders.find(f"drf_spectacular_sidecar/{viewer}/LICENSE"))).is_file()


@table("address", ["/docs/", *PAGES])
def test_a_page_needs_no_key_and_loads_files_from_here_alone(client: Client, address: str) -> None:
    response = client.get(address)

    page = response.content.decode()
    assert response.status_code == 200
    assert "script-src 'self';" in response["Content-Security-Policy"]
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert files
    assert all(finders.find(file.removeprefix("/static/")) for file in files)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert "<script>" not in page


def test_the_pages_and_their_links_can_be_turned_off(client: Client, settings: Settings) -> None:
    client.force_login(User.objects.create_superuser("root"))
    for page in ("/console/", "/admin/"):
        text = client.get(page).content.decode()
        assert re.search(r'<a href="/docs/">.*API reference</a>', text)

    others = [each for each in urls.urlpatterns if str(each.pattern) != "docs/"]
    without: Any = ModuleType("urls_without_docs")
    without.urlpatterns = [*others, path("docs/", include(pages(is_on=False)))]
    settings.ROOT_URLCONF = without
    assert {client.get(each).status_code for each in ("/docs/", *PAGES)} == {404}
    for page in ("/console/", "/admin/"):
        assert "API reference" not in client.get(page).content.decode()


@table("path_", ["/redoc", "/swagger", "/api", "/api/docs/"])
def test_an_unknown_path_names_pages_if_on(path_: str, client: Client, settings: Settings) -> None:
    def message() -> str:
        response = client.get(path_)
        assert response.status_code == 404
        return str(response.json()["error"]["message"]).removeprefix(f"Not found: {path_}.")

    settings.VINERY_DOCS = True
    assert "/docs/ " in message()
    settings.VINERY_DOCS = False
    assert "/docs/" not in message()
