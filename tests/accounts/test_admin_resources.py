"""Every resource in Django's admin: a list with its columns and filters, a form, and a page. The
content security policy allows only the pages' own scripts and styles."""

import re
from html import unescape
from importlib import import_module
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from isolation_tenants import fill

from tests.tables import table
from vinery_accounts.models import User

pytestmark = pytest.mark.usefixtures("root")

INLINE = r"<script(?![^>]*\bsrc=)|<style| style=| on[a-z]+="


def pages() -> list[Any]:
    """Return the pages of resources, which `vinery_platform.urls` has loaded in its order."""
    import_module("vinery_platform.urls")
    return [page for page in admin.site._registry.values() if hasattr(page, "resource")]


def address(page: Any, name: str, *arguments: object) -> str:
    options = page.opts
    return reverse(f"admin:{options.app_label}_{options.model_name}_{name}", args=arguments)


def test_each_resource_is_listed_shown_and_changed_as_it_declares(client: Client) -> None:
    fill("ours", 100)
    for page in pages():
        listed = client.get(address(page, "changelist"))
        rows = listed.context["cl"].result_list
        heads = [name for name in page.resource.columns if name != "id"]
        text = listed.content.decode()
        shown = page.resource.empty_text if not rows else f"column-{heads[0]}"
        assert shown in unescape(text), page
        assert not rows or all(f"column-{name}" in text for name in heads), page
        may_add = "create" in page.resource.verbs
        assert client.get(address(page, "add")).status_code == (200 if may_add else 403), page
        for row in rows[:1]:
            detail = client.get(address(page, "change", row.pk))
            assert detail.status_code == 200, page
            names = page.resource.serializer().fields
            assert any(f"field-{name}" in detail.content.decode() for name in names), page
            if "change" not in page.resource.verbs:
                assert client.post(address(page, "change", row.pk), {}).status_code == 403, page
            if "create" not in page.resource.verbs:
                delete = address(page, "delete", row.pk)
                assert client.post(delete, {"post": "yes"}).status_code == 403, page


@table("query", [{"q": "nothing"}, {"state": "unknown"}, {"project__id__exact": "9" * 30}])
def test_no_address_of_a_list_fails(client: Client, query: dict[str, str]) -> None:
    for page in pages():
        assert client.get(address(page, "changelist"), query).status_code in (200, 302, 400), page


def check(client: Client, path: str) -> None:
    response = client.get(path)

    parts = response.headers["Content-Security-Policy"].split(";")
    policy = dict(part.strip().partition(" ")[::2] for part in parts)
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["form-action"] == "'self'"
    assert not re.search(INLINE, response.content.decode())


def test_no_page_has_what_the_policy_refuses(client: Client, alice: User) -> None:
    check(client, "/admin/")  # loads the models of the site
    assert len(admin.site._registry) > 10
    for page in admin.site._registry.values():
        check(client, address(page, "changelist"))
        check(client, address(page, "add"))
    for path in ("", "accounts/", "accounts/user/1/", "nothing/at/all/"):
        check(client, f"/admin/{path}")
    client.force_login(alice)
    check(client, "/admin/")  # the refusal
    client.logout()
    sign_in = client.get(reverse("account_login"))
    assert "unsafe" not in sign_in.headers["Content-Security-Policy"]
    assert not re.search(INLINE, sign_in.content.decode())
