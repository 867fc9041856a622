"""Keys in the console.

A key is created and shown once, rotated, paused, resumed and revoked by users with the right to do
so. Every step is in the audit log.
"""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from pages import signed_in, text_of

from vinery_accounts.keys.lifecycle import create_key, find_key, pause_key
from vinery_accounts.models import ApiKey, AuditEntry, KeyState, Role, User
from vinery_accounts.services import changes
from vinery_accounts.services.changes import first_project, set_role

pytestmark = pytest.mark.django_db

KEYS = "/console/keys/"


def once(client: Client) -> str:
    text = client.get(f"{KEYS}new/").content.decode()
    found = re.search(r'name="once" value="(.*?)"', text)
    assert found is not None
    return found[1]


def make(client: Client, **changes: Any) -> str:
    """Return the page that answers the form."""
    form = {
        "name": "laptop",
        "project": first_project().pk,
        "scopes": ["inference", "usage"],
        "once": "x" * 16,
    }
    response = client.post(f"{KEYS}new/", form | changes)
    return unescape(response.content.decode())


def secret_in(text: str) -> str:
    found = re.search(r'<pre id="secret">(.*?)</pre>', text)
    assert found is not None, text
    return found[1]


def state_of(key: ApiKey) -> KeyState:
    return ApiKey.objects.get(pk=key.pk).state_at(timezone.now())


def actions() -> list[tuple[str, str]]:
    """Return actor and action of each entry about keys in the audit log."""
    entries = AuditEntry.objects.filter(target_kind="key").order_by("id")
    return list(entries.values_list("actor", "action"))


# -- Creation


def test_a_key_is_shown_once_with_examples_that_use_it(member: User) -> None:
    client = signed_in(member)

    text = make(
        client,
        once=once(client),
        models="tiny-chat, other",
        endpoints=["chat/completions", "responses"],
        networks="10.0.0.0/8",
    )

    secret = secret_in(text)
    key = find_key(secret)
    assert (key.owner, key.name) == (member, "laptop")
    assert (key.allowed_models, key.allowed_networks) == (["tiny-chat", "other"], ["10.0.0.0/8"])
    assert key.allowed_endpoints == ["chat/completions", "responses"]
    assert f"Authorization: Bearer {secret}" in text
    assert f'base_url="http://testserver/v1", api_key="{secret}"' in text
    assert 'model="tiny-chat"' in text
    assert secret not in client.get(KEYS).content.decode()
    assert actions() == [("alice", "key.create")]


def test_a_user_without_a_project_gets_advice_and_no_form(alice: User) -> None:
    text = signed_in(alice).get(f"{KEYS}new/").content.decode()

    assert "There is no project for your keys." in text
    assert "<button>Create</button>" not in text


def test_a_key_is_listed_with_its_note(member: User) -> None:
    client = signed_in(member)

    make(client, once=once(client), note="ask Ann")

    assert ApiKey.objects.get().note == "ask Ann"
    assert '<div class="quiet">ask Ann</div>' in text_of(client.get(KEYS))


def test_a_form_that_is_sent_again_creates_no_second_key(member: User) -> None:
    client = signed_in(member)
    make(client)

    response = client.post(
        f"{KEYS}new/",
        {
            "name": "laptop",
            "project": first_project().pk,
            "scopes": ["usage"],
            "once": "x" * 16,
        },
        follow=True,
    )

    assert "has created a key already" in response.content.decode()
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": ""}, "This field is required"),
        ({"expires_at": "2020-01-01T00:00"}, "Choose a time in the future"),
        ({"networks": "everywhere"}, "Networks look like 10.0.0.0/8"),
        ({"endpoints": "chat"}, "chat is not one of the available choices"),
        ({"scopes": []}, "This field is required"),
        ({"project": 10**6}, "Select a valid choice"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(
    member: User, changes: dict[str, Any], complaint: str
) -> None:
    assert complaint in make(signed_in(member), **changes)
    assert not ApiKey.objects.exists()


def test_a_viewer_cannot_create_a_key(bob: User) -> None:
    set_role(bob, first_project().organization, Role.VIEWER)
    client = signed_in(bob)

    assert "Create API key</a>" not in client.get(KEYS).content.decode()
    assert "There is no project for your keys" in make(client)


# -- Changes


def test_a_key_is_paused_resumed_and_revoked_after_confirmation(member: User) -> None:
    key = create_key(owner=member, name="laptop", project=first_project()).key
    client = signed_in(member)
    states = []

    for step in ("pause", "resume"):
        client.post(f"{KEYS}{key.pk}/{step}/")
        states.append(state_of(key))
    question = client.get(f"{KEYS}{key.pk}/revoke/").content.decode()
    states.append(state_of(key))
    client.post(f"{KEYS}{key.pk}/revoke/")
    states.append(state_of(key))

    active = KeyState.ACTIVE
    assert states == [KeyState.PAUSED, active, active, KeyState.REVOKED]
    assert "Revoke laptop?" in question
    assert actions()[1:] == [("alice", f"key.{verb}") for verb in ("pause", "resume", "revoke")]
    row = client.get(KEYS).content.decode()
    assert 'class="state state-revoked">revoked' in row
    assert f"{key.pk}/revoke/" not in row


def test_a_key_shows_when_it_is_due_to_be_rotated(member: User) -> None:
    client = signed_in(member)
    text = make(client, once=once(client), rotate_every_days="90", rotation_grace_days="7")
    key = find_key(secret_in(text))
    assert (key.rotate_every_days, key.rotation_grace_days) == (90, 7)

    assert f"rotate by {key.rotation_due_at:%Y-%m-%d}" in client.get(KEYS).content.decode()

    ApiKey.objects.update(created_at=timezone.now() - timedelta(days=91))
    assert "rotation overdue" in client.get(KEYS).content.decode()


@pytest.mark.parametrize(
    "values",
    [
        {"rotation_grace_days": "7"},
        {"rotate_every_days": "0"},
        {"rotate_every_days": "9", "rotation_grace_days": "7", "expires_at": "2999-01-01T00:00"},
    ],
)
def test_invalid_days_are_reported_at_their_field(member: User, values: dict[str, str]) -> None:
    client = signed_in(member)

    assert "Error: Create API key" in make(client, once=once(client), **values)
    assert not ApiKey.objects.exists()


def test_the_successor_of_a_rotated_key_is_shown_once(member: User) -> None:
    old = create_key(owner=member, name="laptop", project=first_project())
    client = signed_in(member)
    assert "Rotate laptop?" in client.get(f"{KEYS}{old.key.pk}/rotate/").content.decode()

    text = client.post(f"{KEYS}{old.key.pk}/rotate/", {"grace": "3600"}).content.decode()

    new = find_key(secret_in(text))
    replaced = find_key(old.secret)  # the old key still works
    assert replaced.replaced_by == new
    assert replaced.expires_at is not None
    assert timedelta(minutes=59) < replaced.expires_at - timezone.now() <= timedelta(hours=1)
    again = client.post(f"{KEYS}{old.key.pk}/rotate/", {"grace": "0"}, follow=True)
    assert "has been rotated already" in again.content.decode()
    assert ApiKey.objects.count() == 2


@pytest.mark.parametrize("step", ["pause", "resume", "rotate", "revoke"])
def test_after_the_sign_in_a_user_returns_to_the_button_that_they_pressed(
    member: User, step: str
) -> None:
    laptop = create_key(owner=member, name="laptop").key
    if step == "resume":
        pause_key(laptop)
    state = state_of(laptop)
    to_sign_in = Client().post(f"{KEYS}{laptop.pk}/{step}/?search=lap&state=active")
    assert to_sign_in.status_code == 302
    pressed = parse_qs(urlsplit(to_sign_in["Location"]).query)["next"][0]

    response = signed_in(member).get(pressed, follow=True)

    assert response.status_code == 200
    assert state_of(laptop) is state
    text = unescape(response.content.decode())
    if step in ("pause", "resume"):
        assert response.redirect_chain == [(f"{KEYS}?search=lap&state=active", 302)]
        assert f"Nothing was changed yet. To {step} laptop, press the button again." in text
    else:
        assert "laptop" in text
        assert '<form method="post"' in text


@pytest.mark.parametrize("step", ["pause", "resume", "rotate", "revoke"])
def test_the_key_of_another_user_is_not_found(member: User, bob: User, step: str) -> None:
    key = create_key(owner=member, name="laptop", project=first_project()).key

    response = signed_in(bob).post(f"{KEYS}{key.pk}/{step}/")

    assert response.status_code == 404
    assert state_of(key) is KeyState.ACTIVE
    assert "laptop" not in signed_in(bob).get(KEYS).content.decode()


@pytest.mark.parametrize("step", ["pause", "resume", "rotate", "revoke"])
def test_a_viewer_sees_keys_and_cannot_change_them(member: User, bob: User, step: str) -> None:
    set_role(bob, first_project().organization, Role.VIEWER)
    key = create_key(owner=member, name="laptop", project=first_project()).key
    client = signed_in(bob)

    text = client.get(KEYS).content.decode()

    assert "laptop" in text
    assert f"{KEYS}{key.pk}/{step}/" not in text
    assert client.post(f"{KEYS}{key.pk}/{step}/").status_code == 403
    assert state_of(key) is KeyState.ACTIVE


def test_an_admin_may_not_rotate_a_managing_key_of_an_owner(member: User, bob: User) -> None:
    organization = first_project().organization
    set_role(member, organization, Role.OWNER)
    set_role(bob, organization, Role.ADMIN)
    key = create_key(owner=member, name="deploy", project=first_project(), scopes=["manage"]).key
    client = signed_in(bob)

    assert client.post(f"{KEYS}{key.pk}/rotate/", {"grace": "0"}).status_code == 403
    assert f"{key.pk}/rotate/" not in client.get(KEYS).content.decode()
    assert f"{key.pk}/revoke/" in client.get(KEYS).content.decode()


# -- The page of a key, and keys of other users


def test_a_key_is_changed_on_its_page(member: User) -> None:
    key = create_key(owner=member, project=first_project(), name="laptop").key
    client, address = signed_in(member), f"{KEYS}{key.pk}/"
    text = unescape(client.get(address).content.decode())
    assert key.hint in text
    assert 'value="laptop"' in text

    changed = {
        "name": "desk",
        "note": "ticket 12",
        "scopes": ["inference"],
        "networks": "10.0.0.0/8",
        "expires_at": "2999-01-01T00:00",
    }
    text = unescape(client.post(address, changed, follow=True).content.decode())

    assert "desk is changed." in text
    key.refresh_from_db()
    assert (key.name, key.note, key.scopes) == ("desk", "ticket 12", ["inference"])
    assert key.allowed_networks == ["10.0.0.0/8"]
    assert key.expires_at is not None
    assert ("alice", "key.update") in actions()


def test_an_unchanged_form_changes_nothing(member: User) -> None:
    end = timezone.now() + timedelta(days=3)
    key = create_key(owner=member, project=first_project(), name="laptop", expires_at=end).key
    values = {
        "name": "laptop",
        "scopes": key.scopes,
        "expires_at": end.strftime("%Y-%m-%dT%H:%M"),
    }

    signed_in(member).post(f"{KEYS}{key.pk}/", values)

    key.refresh_from_db()
    assert key.expires_at == end
    assert [action for _, action in actions()] == ["key.create"]


def test_a_wrong_network_is_reported_in_the_folded_fields(member: User) -> None:
    key = create_key(owner=member, project=first_project(), name="laptop").key
    values = {"name": "laptop", "scopes": ["inference"], "networks": "nonsense"}

    text = unescape(signed_in(member).post(f"{KEYS}{key.pk}/", values).content.decode())

    assert '<details class="fields" open>' in text
    assert "errorlist" in text


def test_a_viewer_sees_a_key_and_does_not_change_it(member: User, bob: User) -> None:
    key = create_key(owner=member, project=first_project(), name="laptop").key
    set_role(bob, first_project().organization, Role.VIEWER)
    client, address = signed_in(bob), f"{KEYS}{key.pk}/"
    assert "Save" not in client.get(address).content.decode()

    refused = client.post(address, {"name": "mine", "scopes": ["inference"]})

    assert refused.status_code == 403
    key.refresh_from_db()
    assert key.name == "laptop"


def test_an_admin_creates_a_key_for_a_member_or_a_service_account(alice: User, bob: User) -> None:
    organization = first_project().organization
    set_role(alice, organization, Role.ADMIN)
    set_role(bob, organization, Role.MEMBER)
    client = signed_in(alice)

    key = find_key(secret_in(make(client, owner="bob")))

    assert key.owner == bob
    assert "There is no user of this name" in make(client, owner="nemo", once="y" * 16)
    assert 'name="owner"' not in signed_in(bob).get(f"{KEYS}new/").content.decode()
    own = find_key(secret_in(make(signed_in(bob), owner="alice", once="z" * 16)))
    assert own.owner == bob

    bot = changes.add_user("bot", is_service=True, scope=organization)
    of_bot = find_key(secret_in(make(client, owner="bot", once="b" * 16)))
    assert of_bot.owner == bot
