"""The console's generated pages of a resource: list, new row, form, and a page that asks. No link
leads to a page that the person may not open."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import pytest
from api.api_client import Keys
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import get_resolver
from isolation_tenants import OURS, OWN_ID, fill
from pages import page, sent, text_of
from row_builders import stored_limit

from vinery_accounts.access import changes
from vinery_accounts.console.page import urlpatterns
from vinery_accounts.console.rows import ConfirmPage
from vinery_accounts.models import Membership, ModelWeight, Project, Role, User
from vinery_accounts.resources.base import registered

pytestmark = pytest.mark.django_db

WEIGHTS = "/console/model-weights/"


def test_a_title_is_all_that_a_resource_needs(root: User, client: Client) -> None:
    text = page(client, WEIGHTS)
    assert "None yet: each token" in text
    assert re.search(rf'<a href="{WEIGHTS}" aria-current="page">.*Prices and weights</a>', text)
    assert f"{WEIGHTS}new/" in text
    form = {"model": "tiny-chat", "uncached": 1, "cached": 0.5, "output": 4, "image": 1}
    assert "Give a weight from 0" in sent(client, f"{WEIGHTS}new/", form | {"output": 100_001})

    assert "tiny-chat is created." in sent(client, f"{WEIGHTS}new/", form)

    row = ModelWeight.objects.get()
    opened = f"{WEIGHTS}{row.pk}/"
    assert opened in page(client, WEIGHTS)
    shown = page(client, opened)
    assert 'value="4.0"' in shown and f"{opened}remove/" in shown
    assert 'name="model"' not in shown  # only a new row takes it
    assert "tiny-chat is changed." in sent(client, opened, form | {"output": 8})
    row.refresh_from_db()
    assert (row.output, row.cached) == (8, 0.5)
    assert "Remove: tiny-chat" in page(client, f"{opened}remove/")
    assert "tiny-chat is removed." in sent(client, f"{opened}remove/")
    assert not ModelWeight.objects.exists()


def test_roles_hold_on_generated_pages_too(member: User, client: Client) -> None:
    row = ModelWeight.objects.create(model="tiny-chat")
    Membership.objects.update(role=Role.ADMIN)
    client.force_login(member)
    form = {"model": "other", "uncached": 1, "cached": 1, "output": 1, "image": 1}

    assert "<form" not in page(client, f"{WEIGHTS}{row.pk}/")
    for address in ("new/", f"{row.pk}/", f"{row.pk}/remove/"):
        assert client.post(WEIGHTS + address, form).status_code == 403
    assert [each.model for each in ModelWeight.objects.all()] == ["tiny-chat"]


TEXT: Final = ConfirmPage.text  # that of pages without one of their own


def test_each_action_has_a_page_that_asks_with_a_sentence_of_its_own() -> None:
    assert get_resolver().url_patterns  # imports all pages
    views = {each.name: each.callback for each in urlpatterns}
    texts: dict[str, Any] = {}
    for name, callback in views.items():
        if issubclass(callback.view_class, ConfirmPage) and callback.view_class.text is TEXT:
            view = callback.view_class(**callback.view_initkwargs)
            assert len(view.text().split()) > 3, name
            of = (view.does, view.resource.path)
            assert view.does != "remove" or texts.setdefault(view.text(), of) == of, name
    for path, resource in registered().items():
        wanted = {f"{path}-{verb}" for verb in {"remove"} & resource.verbs if resource.title}
        of_rows = [each for each in resource.actions if not each.is_of_list]
        wanted |= {f"{path}-{each.name}" for each in of_rows if resource.title}
        assert wanted <= views.keys()


def test_a_confirmation_counts_what_goes_or_stops_with_the_row(
    root: User, alice: User, new_key: Keys, client: Client
) -> None:
    key = new_key().key
    stored_limit("user", alice.pk)
    user, project = f"/console/users/{alice.pk}/", f"/console/projects/{key.project_id}/"

    asked = page(client, f"{user}remove/")
    assert f"Remove: {alice}" in asked and "csrfmiddlewaretoken" in asked
    assert "This also removes 1 limit, 1 API key and 1 membership." in asked
    for each in (user, project):
        asked = page(client, f"{each}deactivate/")
        assert "until it is activated again" in asked and "This stops 1 API key." in asked
    assert "This stops" not in page(client, f"{user}activate/")
    assert "is deactivated." in sent(client, f"{project}deactivate/")
    assert not Project.objects.get(pk=key.project_id).is_active
    assert "is active." in sent(client, f"{project}activate/")

    # What cannot be removed is not asked about.
    refused = text_of(client.get(f"{project}remove/", follow=True))
    assert "has keys, and revoked keys count too" in refused and "Remove</button>" not in refused
    with pytest.raises(ValidationError, match="has keys"):
        changes.remove(key.project)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(root)
    assert strict.post(f"{user}remove/").status_code == 403


_ROOT = "/console/"
# Signing out ends the walk; documents are no pages of the console.
_ELSEWHERE = re.compile(r"/(?!console/)|/console/.*\.csv|.*/log/?$|.*download")
_MAX_PAGES = 400


def test_every_link_leads_to_a_page_that_the_person_may_open() -> None:
    users = fill(OURS, OWN_ID).users
    users["outsider"] = User.objects.create_user("outsider")
    users["superuser"] = User.objects.create_superuser("superuser")
    bad: list[str] = []
    for role in ("owner", "project admin", "member", "outsider", "superuser"):
        client = Client(raise_request_exception=False)
        client.force_login(users[role])
        found = list(_walk(client))
        assert len(found) > 5
        bad += [f"{role} on {page}: {to} {status}" for to, page, status in found if status != 200]

    assert not bad, "\n".join(bad)


def _walk(client: Client) -> Iterator[tuple[str, str, int]]:
    """Yield each address, the page with the link to it, and the status."""
    seen, queue = {_kind(_ROOT)}, [(_ROOT, "")]
    while queue:
        address, found_on = queue.pop(0)
        response = client.get(address, follow=True)
        yield address, found_on, response.status_code
        if response.status_code != 200 or response.streaming:
            continue
        text = response.content.decode()
        for link in re.findall(r'<a [^>]*?href="([^"#]+)', text):
            there = urljoin(address, unescape(link))
            parts = urlsplit(there)
            if parts.netloc or _ELSEWHERE.match(parts.path) or _kind(there) in seen:
                continue
            seen.add(_kind(there))
            assert len(seen) < _MAX_PAGES
            queue.append((there, address))


def _kind(address: str) -> str:
    """Return the address without the values of its query: one page of a kind is enough."""
    parts = urlsplit(address)
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&")})
    return f"{parts.path}?{names}"
