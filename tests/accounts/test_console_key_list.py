"""The list of keys in the console: search, pages, and the way back to the list."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pages import signed_in

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.keys.lifecycle import create_key, pause_key
from vinery_accounts.models import ApiKey, Project, Role, User

pytestmark = pytest.mark.django_db

KEYS = "/console/keys/"


def page(client: Client, query: str = "") -> str:
    return unescape(client.get(f"{KEYS}{query}").content.decode())


def listed(text: str) -> list[str]:
    """Return the names in the list, in order."""
    return re.findall(r'title="Details">(.*?)</a>', text)


def link(text: str, words: str) -> str:
    """Return the URL of the link with these words, or ""."""
    found = re.search(rf'href="([^"]*)">{words}</a>', text)
    return "" if found is None else found[1]


def add_many(owner: User, num_keys: int, **values: Any) -> None:
    """Create keys with the names key 0, key 1 and so on."""
    first, whose = ApiKey.objects.count(), {"owner": owner, "project": first_project()}
    ApiKey.objects.bulk_create(
        ApiKey(name=f"key {at}", digest=f"{first + at:064}", pepper_id=1, **whose, **values)
        for at in range(num_keys)
    )


@pytest.fixture
def client(member: User) -> Client:
    return signed_in(member)


@pytest.fixture
def laptop(member: User, bob: User) -> ApiKey:
    """Create a key of alice, and one of bob in another project."""
    first = first_project()
    other = changes.add(Project(organization=first.organization, name="Crawling"))
    create_key(owner=bob, name="Nightly", project=other)
    return create_key(owner=member, name="laptop", project=first).key


def test_a_visible_key_is_found_by_name_or_state(client: Client, bob: User, laptop: ApiKey) -> None:
    assert listed(page(client)) == ["laptop", "Nightly"]
    for text in ("nightl", "BOB", "crawl"):
        found = page(client, f"?search={text}")
        assert listed(found) == ["Nightly"]
        assert f'value="{text}"' in found
        assert link(found, "Show all keys") == KEYS
    assert listed(page(client, f"?search={laptop.hint[-4:]}")) == ["laptop"]
    assert listed(page(signed_in(bob), "?search=laptop")) == []
    assert "<script>x" not in client.get(KEYS, {"search": '"><script>x</script>'}).content.decode()

    pause_key(laptop)

    assert listed(page(client, "?state=paused")) == ["laptop"]
    assert listed(page(client, "?state=active")) == ["Nightly"]
    assert listed(page(client, "?state=active&search=lap")) == []


@pytest.fixture
def two_keys(member: User) -> None:
    add_many(member, 2)


@table(
    "query, complaint",
    [
        ("?state=dead", "State: Select a valid choice"),
        ("?search=%00", "Search: Null characters are not allowed"),
        (f"?search={'x' * 256}", "Search: Ensure this value has at most 255 characters"),
        (f"?page={'9' * 30}&before=x", ""),
    ],
)
def test_an_invalid_query_is_reported_and_filters_no_keys(
    client: Client, two_keys: None, query: str, complaint: str
) -> None:
    text = page(client, query)

    assert complaint in text
    assert listed(text) == ["key 1", "key 0"]


def test_pages_go_in_both_directions_and_keep_the_search(client: Client, member: User) -> None:
    add_many(member, 120)
    first = page(client)
    assert link(first, "Previous") == ""

    second = page(client, link(first, "Next"))
    third = page(client, link(second, "Next"))

    names = [listed(text) for text in (first, second, third)]
    together = [name for part in names for name in part]
    assert together == [f"key {number}" for number in reversed(range(120))]
    assert link(third, "Next") == ""
    assert listed(page(client, link(third, "Previous"))) == names[1]
    assert listed(page(client, link(second, "Previous"))) == names[0]

    add_many(member, 60, paused_at=timezone.now())

    first = page(client, "?state=paused&search=key")
    second = page(client, link(first, "Next"))
    assert listed(second) == [f"key {number}" for number in reversed(range(10))]
    assert link(second, "Next") == ""
    assert listed(page(client, link(second, "Previous"))) == listed(first)


@table("step", ["pause", "resume", "revoke"])
def test_an_action_returns_to_the_search(client: Client, laptop: ApiKey, step: str) -> None:
    view = "?search=lap&page=9"
    address = f"{KEYS}{laptop.pk}/{step}/{view}"
    assert f'"{address}"' in page(client, view)
    if step == "revoke":
        assert link(unescape(client.get(address).content.decode()), "Keep it") == f"{KEYS}{view}"

    response = client.post(f"{address}&next=//elsewhere.example")

    assert response.headers["Location"] == f"{KEYS}{view}"
    assert listed(page(client, view)) == ["laptop"]


def test_the_number_of_queries_does_not_depend_on_the_number_of_keys(bob: User) -> None:
    organization = first_project().organization
    set_role(bob, organization, Role.ADMIN)
    client = signed_in(bob)

    def num_queries(num_owners: int) -> int:
        for number in range(num_owners):
            owner = User.objects.create_user(f"owner {User.objects.count()} {number}")
            set_role(owner, organization, Role.MEMBER)
            add_many(owner, 2, scopes=["manage"])
        with CaptureQueriesContext(connection) as queries:
            assert listed(page(client))
        return len(queries)

    assert num_queries(1) == num_queries(10) == num_queries(30)
