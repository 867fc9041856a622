"""The command palette, the switch of organisation and project, and times in the reader's zone."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.contrib.sessions.backends.base import SessionBase
from django.test import Client
from pages import page, sent, signed_in, text_of, used

from tests.tables import table
from vinery_accounts.access import changes, served
from vinery_accounts.access.served import Served
from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import ApiKey, Organization, Project, User
from vinery_accounts.usage.store import store_settlements

pytestmark = pytest.mark.django_db

FIND = "/console/find/"
NARROWED = 'class="only"'
FRAGMENT = {"x-live": "1"}


def found(client: Client, words: str, **more: str) -> str:
    return text_of(client.get(FIND, {"q": words, **more}, headers=FRAGMENT))


@pytest.fixture
def both(member: User, search: Project, new_key: Callable[..., NewKey]) -> User:
    """Return alice, a member of the first organisation alone, with a key."""
    new_key("laptop")
    return member


def test_the_palette_finds_what_the_person_may_open(
    both: User, root: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_readers", [lambda: [Served("tiny-chat", row_id=7)]])
    alice, key = signed_in(both), ApiKey.objects.get(name="laptop")
    for words, of_alice, of_root in (
        ("", "Usage", "Devices"),
        ("usag", "/console/usage/", "/console/usage/"),
        ("laptop", f"/console/keys/{key.pk}/", f"/console/keys/{key.pk}/"),
        ("tiny", "/console/playground/?model=tiny-chat", "/console/models/7/"),
        ("acme", "Nothing matches", "/console/organizations/"),
        ("alice", "/console/members/", "/console/members/"),
        ("SEARCH", "Nothing matches", "Acme / search"),
    ):
        assert of_alice in found(alice, words), words
        assert of_root in found(client, words), words
        for link in re.findall(r'href="([^"]+)', found(alice, words)):
            assert alice.get(link).status_code == 200, link
    assert "Devices" not in found(alice, "")


def test_the_switch_narrows_all_pages_until_all_are_wanted(
    both: User, root: User, client: Client, search: Project
) -> None:
    first = changes.first_project()
    for name, project in (("one", first), ("two", search)):
        whose = {"project_id": project.pk, "organization_id": project.organization_id}
        store_settlements([used(root, name, model=f"model-{name}", **whose)])
    usage = "/console/usage/?by=model"
    assert "model-one" in page(client, usage)

    assert "Acme / search" in found(client, "", scopes="1")
    shown = sent(client, "/console/scope/", {"scope": f"project:{search.pk}"})
    assert "Only Acme / search" in shown
    assert "model-two" in page(client, usage) and "model-one" not in page(client, usage)
    projects = page(client, "/console/projects/")
    assert f"/console/projects/{search.pk}/" in projects
    assert f"/console/projects/{first.pk}/" not in projects

    client.post("/console/scope/", {"scope": ""}, headers={"referer": f"http://testserver{usage}"})
    assert "model-one" in page(client, usage) and "model-two" in page(client, usage)


def test_a_scope_that_the_person_may_not_see_is_not_taken(
    both: User, search: Project, acme: Organization
) -> None:
    alice = signed_in(both)
    for text in (f"project:{search.pk}", f"organization:{acme.pk}", "project:0", "user:1", "\0"):
        assert NARROWED not in sent(alice, "/console/scope/", {"scope": text})
        session: SessionBase = alice.session
        session["scope"] = text  # as it was before a role ended
        session.save()
        assert NARROWED not in page(alice, "/console/keys/")


@table(
    "chosen, cookie, shown",
    [
        ("", "", "2026-01-02 03:04"),
        ("", "Asia/Kolkata", "2026-01-02 08:34"),
        ("America/New_York", "Asia/Kolkata", "2026-01-01 22:04"),
        ("", "../../etc/passwd", "2026-01-02 03:04"),
    ],
)
def test_times_are_in_the_zone_of_the_reader_and_exact_when_pointed_at(
    root: User, client: Client, new_key: Callable[..., NewKey], chosen: str, cookie: str, shown: str
) -> None:
    key = new_key("laptop").key
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    client.cookies["zone"] = cookie
    sent(client, "/console/time-zone/", {"time_zone": chosen})

    text = page(client, f"/console/keys/{key.pk}/")

    assert f">{shown}</time>" in text
    assert 'datetime="2026-01-02T03:04:05+00:00"' in text
    assert "2026-01-02 03:04:05 UTC" in text
    User.objects.update(time_zone="")
    key.delete()
