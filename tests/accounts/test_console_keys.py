"""Keys in the console.

A key is created and shown once, rotated, paused, resumed and revoked by users with the right to do
so. Every step is in the audit log.
"""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from pages import page, sent, signed_in, text_of
from row_builders import logged

from tests.tables import table
from vinery_accounts.access import served
from vinery_accounts.access.changes import first_project
from vinery_accounts.access.served import Served
from vinery_accounts.keys.lifecycle import create_key, find_key, pause_key
from vinery_accounts.models import ApiKey, KeyState, User

pytestmark = pytest.mark.django_db

KEYS = "/console/keys/"
NEW = f"{KEYS}new/"
STEPS = ("pause", "resume", "rotate", "revoke")


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
    return sent(client, NEW, form | {"once": "x" * 16} | changes)


def secret_in(text: str) -> str:
    found = re.search(r'<pre id="secret">(.*?)</pre>', text)
    assert found is not None, text
    return found[1]


def state_of(key: ApiKey) -> KeyState:
    return ApiKey.objects.get(pk=key.pk).state_at(timezone.now())


def test_a_key_is_created_and_shown_once_with_examples(
    client: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Served(name, is_for_chats=True) for name in ("tiny-chat", "other")]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    once = re.search(r'name="once" value="(.*?)"', page(client, NEW))
    assert once is not None
    endpoints = ["chat/completions", "responses"]
    more = {"models": ["tiny-chat", "other"], "networks": "10.0.0.0/8", "note": "ask Ann"}

    text = make(client, once=once[1], endpoints=endpoints, **more)

    secret = secret_in(text)
    key = find_key(secret)
    assert (key.owner, key.name, key.note) == (member, "laptop", "ask Ann")
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat", "other"], ["10.0.0.0/8"])
    assert key.allowed_endpoints == endpoints
    assert f"Authorization: Bearer {secret}" in text
    assert f'base_url="http://testserver/v1", api_key="{secret}"' in text
    assert 'model="tiny-chat"' in text
    listed = page(client, KEYS)
    assert secret not in listed
    assert '<div class="quiet">ask Ann</div>' in listed
    assert "has created a key already" in make(client, once=once[1])
    assert ApiKey.objects.count() == 1
    assert logged(target_kind="key", actor="alice") == ["key.create"]


LATER = "2999-01-01T00:00"
ROTATED = {"rotate_every_days": "90", "rotation_grace_days": "7"}


@table(
    "changes, complaint",
    [
        ({"name": ""}, "This field is required"),
        ({"expires_at": "2020-01-01T00:00"}, "Choose a time in the future"),
        ({"networks": "everywhere"}, "Networks look like 10.0.0.0/8"),
        ({"endpoints": "chat"}, "chat is not one of the available choices"),
        ({"scopes": []}, "This field is required"),
        ({"project": 10**6}, "Select a valid choice"),
        ({**ROTATED, "expires_at": LATER}, "Error: Create API key"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(
    client: Client, changes: dict[str, Any], complaint: str
) -> None:
    assert complaint in make(client, **changes)
    assert not ApiKey.objects.exists()


def test_a_key_is_paused_resumed_and_revoked(client: Client, key: ApiKey, address: str) -> None:
    client.post(f"{address}pause/")
    assert state_of(key) is KeyState.PAUSED
    client.post(f"{address}resume/")
    assert "Revoke laptop?" in page(client, f"{address}revoke/")
    assert state_of(key) is KeyState.ACTIVE
    client.post(f"{address}revoke/")
    assert state_of(key) is KeyState.REVOKED

    assert logged(actor="alice") == ["key.pause", "key.resume", "key.revoke"]
    row = page(client, KEYS)
    assert 'class="state state-revoked">revoked' in row
    assert f"{address}revoke/" not in row


def test_a_key_shows_its_rotation_and_its_successor_once(client: Client, member: User) -> None:
    text = make(client, **ROTATED)
    key = find_key(secret_in(text))
    assert (key.rotate_every_days, key.rotation_grace_days) == (90, 7)

    assert f"rotate by {key.rotation_due_at:%Y-%m-%d}" in page(client, KEYS)

    ApiKey.objects.update(created_at=timezone.now() - timedelta(days=91))
    assert "rotation overdue" in page(client, KEYS)

    old = create_key(owner=member, name="laptop", project=first_project())
    rotate = f"{KEYS}{old.key.pk}/rotate/"
    assert "Rotate laptop?" in page(client, rotate)

    text = sent(client, rotate, {"grace": "3600"})

    replaced = find_key(old.secret)  # the old key still works
    assert replaced.replaced_by == find_key(secret_in(text))
    assert replaced.expires_at is not None
    assert timedelta(minutes=59) < replaced.expires_at - timezone.now() <= timedelta(hours=1)
    assert "has been rotated already" in sent(client, rotate, {"grace": "0"})
    assert ApiKey.objects.count() == 3


def test_the_form_offers_the_addresses_that_keys_were_used_from(
    client: Client, key: ApiKey, address: str
) -> None:
    ApiKey.objects.update(last_used_ip="192.0.2.7", last_used_at=key.created_at)
    text = page(client, address)
    [listed] = re.findall(r'name="networks"[^>]* list="([^"]+)"', text)
    assert f'<datalist id="{listed}"><option value="192.0.2.7"></option></datalist>' in text


@table("step", STEPS)
def test_sign_in_leads_to_the_button(client: Client, key: ApiKey, address: str, step: str) -> None:
    if step == "resume":
        pause_key(key)
    state = state_of(key)
    to_sign_in = Client().post(f"{address}{step}/?search=lap&state=active")
    assert to_sign_in.status_code == 302
    pressed = parse_qs(urlsplit(to_sign_in["Location"]).query)["next"][0]

    response = client.get(pressed, follow=True)

    assert state_of(key) is state
    text = text_of(response)
    if step in ("pause", "resume"):
        assert response.redirect_chain == [(f"{KEYS}?search=lap&state=active", 302)]
        assert f"Nothing was changed yet. To {step} {key}, press the button again." in text
    else:
        assert "laptop" in text
        assert '<form method="post"' in text


def test_a_key_is_changed_on_its_page(client: Client, key: ApiKey, address: str) -> None:
    text = text_of(client.get(address))
    assert key.hint in text
    assert 'value="laptop"' in text
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
