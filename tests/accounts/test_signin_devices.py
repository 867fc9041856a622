"""Strangers cannot lock a user out of a known device, or out of an account with a second factor."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.signing import TimestampSigner
from django.test import Client
from signin_helpers import PASSWORD, WAIT, code_of, enter_code, give_factor, person, sign_in
from signin_helpers import signed_in_name as name_in

from vinery_accounts.models import User
from vinery_accounts.services.changes import set_password
from vinery_accounts.signin import devices

pytestmark = pytest.mark.django_db

HOME, STRANGER = "198.51.100.7", "203.0.113.9"


def lock(name: str, address: str = STRANGER) -> None:
    for _ in range(5):
        sign_in(Client(REMOTE_ADDR=address), name, "wrong")


def is_locked(response: Any) -> bool:
    return bool(re.search(WAIT, response.content.decode()))


def cookie_of(client: Client, user: User) -> Any:
    return client.cookies[f"known_device_{user.pk}"]


@pytest.fixture
def known(client: Client) -> Client:
    """A browser in which alice has signed in before."""
    person("alice")
    sign_in(client, "alice", REMOTE_ADDR=HOME)
    client.post("/accounts/logout/")
    assert name_in(client) == ""
    return client


def test_wrong_passwords_of_strangers_do_not_lock_out_a_known_device(known: Client) -> None:
    lock("alice")
    assert is_locked(sign_in(Client(REMOTE_ADDR=HOME), "alice"))

    sign_in(known, "alice", REMOTE_ADDR=HOME)

    assert name_in(known) == "alice"


def test_strangers_in_the_same_network_do_not_lock_out_a_known_device(known: Client) -> None:
    for number in range(10):
        sign_in(Client(REMOTE_ADDR=HOME), f"name{number}", "wrong")
    assert is_locked(sign_in(Client(REMOTE_ADDR=HOME), "alice"))

    sign_in(known, "alice", REMOTE_ADDR=HOME)

    assert name_in(known) == "alice"


def test_a_known_device_has_five_attempts(known: Client) -> None:
    for _ in range(5):
        assert not is_locked(sign_in(known, "alice", "wrong"))

    assert is_locked(sign_in(known, "alice"))


def test_a_known_device_of_one_user_is_unknown_for_another(known: Client) -> None:
    person("bob")
    lock("bob")

    assert is_locked(sign_in(known, "bob"))


def test_a_cookie_of_another_user_is_not_accepted(known: Client) -> None:
    alice, bob = User.objects.get(username="alice"), person("bob")
    lock("bob")
    known.cookies[f"known_device_{bob.pk}"] = cookie_of(known, alice).value

    assert is_locked(sign_in(known, "bob"))


def test_a_new_password_makes_all_devices_unknown(known: Client) -> None:
    set_password(User.objects.get(username="alice"), "another horse battery")
    lock("alice")

    assert is_locked(sign_in(known, "alice", "another horse battery"))


def test_a_device_is_known_for_90_days(known: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = User.objects.get(username="alice")
    cookie = cookie_of(known, alice)
    assert cookie["max-age"] == devices._LIFE_S == 90 * 24 * 3600
    lock("alice")
    monkeypatch.setattr(devices, "_LIFE_S", -1)

    assert is_locked(sign_in(known, "alice"))


@pytest.mark.parametrize("value", ["", "x", "a.b.c:d:e", "\x00"])
def test_a_cookie_without_our_signature_is_ignored(client: Client, value: str) -> None:
    alice = person("alice")
    lock("alice")
    client.cookies[f"known_device_{alice.pk}"] = value

    assert is_locked(sign_in(client, "alice"))
    client.cookies[f"known_device_{alice.pk}"] = TimestampSigner(salt="other").sign("a.b")
    assert is_locked(sign_in(client, "alice"))


def test_the_cookie_is_for_sign_in_pages_only_and_not_for_scripts(
    known: Client, settings: Any
) -> None:
    cookie = cookie_of(known, User.objects.get(username="alice"))
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/accounts/", True, "Lax")
    assert not cookie["secure"]

    settings.SESSION_COOKIE_SECURE = True
    sign_in(known, "alice", secure=True)

    assert cookie_of(known, User.objects.get(username="alice"))["secure"]


def test_a_device_is_known_only_after_the_second_factor(client: Client) -> None:
    alice = person("alice")
    secret = give_factor(alice)

    sign_in(client, "alice")
    assert f"known_device_{alice.pk}" not in client.cookies

    enter_code(client, code_of(secret))
    assert name_in(client) == "alice"
    assert f"known_device_{alice.pk}" in client.cookies


def test_strangers_do_not_lock_out_a_user_with_a_second_factor(client: Client) -> None:
    secret = give_factor(person("alice"))
    lock("alice")
    assert is_locked(sign_in(Client(REMOTE_ADDR=STRANGER), "alice"))

    sign_in(client, "alice", REMOTE_ADDR=HOME)
    enter_code(client, code_of(secret))

    assert name_in(client) == "alice"


def test_wrong_passwords_for_a_user_with_a_second_factor_lock_their_network(
    client: Client,
) -> None:
    give_factor(person("alice"))
    lock("alice", HOME)

    assert is_locked(sign_in(client, "alice", REMOTE_ADDR=HOME))
    assert not is_locked(sign_in(client, "alice", PASSWORD, REMOTE_ADDR=STRANGER))
