"""The content security policy of the admin: only its own files run and style its pages."""

import re

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from vinery_accounts.models import User

pytestmark = pytest.mark.django_db

INLINE = r"<script(?![^>]*\bsrc=)|<style| style=| on[a-z]+="


def check(client: Client, path: str) -> None:
    response = client.get(path)

    parts = response.headers["Content-Security-Policy"].split(";")
    policy = dict(part.strip().partition(" ")[::2] for part in parts)
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["form-action"] == "'self'"
    assert not re.search(INLINE, response.content.decode())


def test_no_page_has_what_the_policy_refuses(client: Client, root: User, alice: User) -> None:
    check(client, "/admin/")  # loads the models of the site
    assert len(admin.site._registry) > 10
    for model in admin.site._registry:
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        check(client, reverse(f"admin:{name}_changelist"))
        check(client, reverse(f"admin:{name}_add"))

    for path in ("", "accounts/", "accounts/user/1/", "nothing/at/all/"):
        check(client, f"/admin/{path}")
    client.force_login(alice)
    check(client, "/admin/")  # the refusal


def test_sign_in_pages_have_no_style_of_their_own(client: Client) -> None:
    response = client.get(reverse("account_login"))

    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert not re.search(INLINE, response.content.decode())
