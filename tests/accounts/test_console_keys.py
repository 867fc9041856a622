"""Keys in the console: shown once, found, rotated, paused, resumed, revoked and changed."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from pages import num_queries, page, sent, signed_in, text_of
from row_builders import logged

from vinery_accounts.access import changes, served
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.access.served import Served
from vinery_accounts.keys.lifecycle import create_key, find_key
from vinery_accounts.models import ApiKey, KeyState, Project, Role, User

pytestmark = pytest.mark.django_db

KEYS = "/console/keys/"
NEW = f"{KEYS}new/"
LATER = "2999-01-01T00:00"


@pytest.fixture
def client(member: User) -> Client:
    """A client of alice, who is a member."""
    return signed_in(member)


@pytest.fixture
def key(member: User) -> ApiKey:
    """The key laptop of alice."""
    return create_key(owner=member, name="laptop", project=first_project()).key


@pytest.fixture
def address(key: ApiKey) -> str:
    return f"{KEYS}{key.pk}/"


def make(client: Client, **changes: Any) -> str:
    """Return the page that answers the form."""
    form = {"name": "laptop", "project": first_project().pk, "scopes": ["inference", "usage"]}
    return sent(client, NEW, form | changes)


def secret_in(text: str) -> str:
    found = re.search(r'<pre id="secret">(.*?)</pre>', text)
    assert found is not None, text
    return found[1]


def state_of(key: ApiKey) -> KeyState:
    return ApiKey.objects.get(pk=key.pk).state_at(timezone.now())


def listed(client: Client, query: str = "") -> list[str]:
    """Return the names in the list, in order."""
    return re.findall(r'title="Details">(.*?)</a>', unescape(page(client, f"{KEYS}{query}")))


def link(text: str, words: str) -> str:
    """Return the URL of the link with these words, or ""."""
    found = re.search(rf'href="([^"]*)">{words}</a>', text)
    return "" if found is None else unescape(found[1])


def add_many(owner: User, num_keys: int, **values: Any) -> None:
    """Create keys with the names key 0, key 1 and so on."""
    first, whose = ApiKey.objects.count(), {"owner": owner, "project": first_project()}
    ApiKey.objects.bulk_create(
        ApiKey(name=f"key {at}", digest=f"{first + at:064}", pepper_id=1, **whose, **values)
        for at in range(num_keys)
    )


def test_a_key_is_created_and_shown_once_with_examples(
    client: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Served(name, is_for_chats=True) for name in ("tiny-chat", "other")]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    endpoints = ["chat/completions", "responses"]
    more = {"models": ["tiny-chat", "other"], "networks": "10.0.0.0/8", "note": "ask Ann"}

    text = make(client, endpoints=endpoints, **more)

    secret = secret_in(text)
    key = find_key(secret)
    assert (key.owner, key.name, key.note) == (member, "laptop", "ask Ann")
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat", "other"], ["10.0.0.0/8"])
    assert key.allowed_endpoints == endpoints
    assert f"Authorization: Bearer {secret}" in text
    assert f'base_url="http://testserver/v1", api_key="{secret}"' in text
    assert 'model="tiny-chat"' in text
    shown = page(client, KEYS)
    assert secret not in shown
    assert '<div class="quiet">ask Ann</div>' in shown
    assert logged(target_kind="key", actor="alice") == ["key.create"]


def test_a_key_is_paused_resumed_and_revoked(client: Client, key: ApiKey, address: str) -> None:
    client.post(f"{address}pause/")
    assert state_of(key) is KeyState.PAUSED
    client.post(f"{address}resume/")
    assert f"Revoke: {key}" in page(client, f"{address}revoke/")
    assert state_of(key) is KeyState.ACTIVE
    assert f"{key} is revoked." in sent(client, f"{address}revoke/")
    assert state_of(key) is KeyState.REVOKED

    assert logged(actor="alice") == ["key.pause", "key.resume", "key.revoke"]
    row = page(client, KEYS)
    assert 'class="state state-revoked">revoked' in row
    assert f"{address}revoke/" not in row


def test_a_key_shows_its_rotation_and_its_successor_once(client: Client, member: User) -> None:
    key = find_key(secret_in(make(client, rotate_every_days="90", rotation_grace_days="7")))
    assert f"rotate by {key.rotation_due_at:%Y-%m-%d}" in page(client, KEYS)
    ApiKey.objects.update(created_at=timezone.now() - timedelta(days=91))
    assert "rotation overdue" in page(client, KEYS)

    old = create_key(owner=member, name="laptop", project=first_project())
    rotate = f"{KEYS}{old.key.pk}/rotate/"
    assert "The old secret ends" in page(client, rotate)

    text = sent(client, rotate, {"grace": "3600"})

    replaced = find_key(old.secret)  # the old key still works
    assert replaced.replaced_by == find_key(secret_in(text))
    assert replaced.expires_at is not None
    assert timedelta(minutes=59) < replaced.expires_at - timezone.now() <= timedelta(hours=1)
    assert "has been rotated already" in sent(client, rotate, {"grace": "0"})
    assert ApiKey.objects.count() == 3


def test_sign_in_leads_from_a_button_to_a_page_that_asks(
    client: Client, key: ApiKey, address: str
) -> None:
    to_sign_in = Client().post(f"{address}pause/?search=lap&state=active")
    assert to_sign_in.status_code == 302
    pressed = parse_qs(urlsplit(to_sign_in["Location"]).query)["next"][0]

    text = text_of(client.get(pressed))

    assert state_of(key) is KeyState.ACTIVE
    assert f"Pause: {key}" in text and '<form method="post"' in text


def test_a_key_is_changed_on_its_page(client: Client, key: ApiKey, address: str) -> None:
    ApiKey.objects.update(last_used_ip="192.0.2.7", last_used_at=key.created_at)
    text = text_of(client.get(address))
    assert key.hint in text
    assert 'value="laptop"' in text
    # The form offers the addresses that keys were used from.
    [offered] = re.findall(r'name="networks"[^>]* list="([^"]+)"', text)
    assert f'<datalist id="{offered}"><option value="192.0.2.7"></option></datalist>' in text
    wrong = sent(client, address, {"name": "x", "scopes": ["inference"], "networks": "nonsense"})
    assert '<details class="fields" open>' in wrong  # the folded fields
    assert "errorlist" in wrong

    changed = {"name": "desk", "note": "ticket 12", "scopes": ["inference"]}
    text = sent(client, address, changed | {"networks": "10.0.0.0/8", "expires_at": LATER})

    assert "desk is changed." in text
    key.refresh_from_db()
    assert (key.name, key.note, key.scopes) == ("desk", "ticket 12", ["inference"])
    assert key.allowed_networks == ["10.0.0.0/8"]
    assert key.expires_at is not None
    assert logged(actor="alice") == ["key.update"]


def test_keys_are_found_and_an_action_returns_to_the_search(
    client: Client, bob: User, key: ApiKey, address: str
) -> None:
    other = changes.add(Project(organization=first_project().organization, name="Crawling"))
    create_key(owner=bob, name="Nightly", project=other)
    assert listed(client) == ["Nightly", "laptop"]
    assert listed(client, "?search=nightl") == ["Nightly"]
    assert link(page(client, f"{KEYS}?search=nightl"), "Show all keys") == KEYS
    assert listed(signed_in(bob), "?search=laptop") == []
    assert "<script>x" not in client.get(KEYS, {"search": '"><script>x</script>'}).content.decode()

    client.post(f"{address}pause/")

    assert listed(client, "?state=paused") == ["laptop"]
    assert listed(client, "?state=active") == ["Nightly"]
    for query, complaint in {
        "?state=dead": "State: Select a valid choice",
        "?search=%00": "Search: Null characters are not allowed",
        f"?page={'9' * 30}&before=x": "",
    }.items():
        assert complaint in page(client, f"{KEYS}{query}")
        assert listed(client, query) == ["Nightly", "laptop"]

    view = "?search=lap&page=9"
    for step in ("resume", "pause", "revoke"):
        asked = f"{address}{step}/{view}"
        assert f'"{asked}"' in unescape(page(client, f"{KEYS}{view}"))
        assert link(page(client, asked), "Cancel") == f"{KEYS}{view}"
        response = client.post(f"{asked}&next=//elsewhere.example")
        assert response.headers["Location"] == f"{KEYS}{view}"


def test_the_number_of_queries_does_not_depend_on_the_number_of_keys(bob: User) -> None:
    organization = first_project().organization
    set_role(bob, organization, Role.ADMIN)
    client = signed_in(bob)

    def queries(num_owners: int) -> int:
        for number in range(num_owners):
            owner = User.objects.create_user(f"owner {User.objects.count()} {number}")
            set_role(owner, organization, Role.MEMBER)
            add_many(owner, 2, scopes=["manage"])
        return num_queries(client, KEYS)

    assert queries(1) == queries(10) == queries(30)
