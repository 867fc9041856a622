"""Sign-in with a password: accepted and refused users, and the limits of attempts, with which
strangers cannot lock a user out of a known device, or out of an account with a second factor."""

import re
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.core.signing import TimestampSigner
from django.db import connection
from django.test import Client
from django.urls import reverse
from signin_helpers import (
    PASSWORD,
    change_password,
    code_of,
    enter_code,
    give_factor,
    is_locked,
    person,
    sign_in,
    signed_in_name,
    text_of,
)

from vinery_accounts.access.changes import set_password
from vinery_accounts.models import AuditEntry, User
from vinery_accounts.signin import attempts
from vinery_platform.cli import main

pytestmark = pytest.mark.django_db

HOME, STRANGER = "198.51.100.7", "203.0.113.9"


def lock(name: str) -> None:
    for _ in range(5):
        sign_in(Client(REMOTE_ADDR=STRANGER), name, "wrong")


def test_a_right_password_gives_a_session_of_the_console(client: Client, alice: User) -> None:
    client.get(reverse("account_login"))
    client.session["planted"] = "by an attacker"
    before = client.session.session_key
    response = sign_in(client, "alice")
    assert (response.status_code, response.url) == (302, reverse("console:overview"))
    assert signed_in_name(client) == "alice"
    assert client.session.session_key != before

    response = client.get("/admin/", follow=True)
    assert response.status_code == 403
    assert "You may not do this" in text_of(response)


def test_who_may_not_sign_in_is_refused_without_a_reason(client: Client, alice: User) -> None:
    person("gone", is_staff=True, is_active=False)
    person("robot", is_staff=True, is_service=True)

    passwords = {"alice": "not it", "unknown": "not it", "gone": PASSWORD, "robot": PASSWORD}
    for name, password in passwords.items():
        page = text_of(sign_in(client, name, password))
        assert "username and/or password you specified are not correct" in page, name
        assert signed_in_name(client) == ""


@pytest.mark.parametrize("field", ["is_active", "is_service"])
def test_a_deactivated_user_loses_the_session_at_once(
    client: Client, alice: User, field: str
) -> None:
    sign_in(client, "alice")
    assert signed_in_name(client) == "alice"

    setattr(alice, field, field != "is_active")
    alice.save()

    assert signed_in_name(client) == ""


def test_the_one_sign_in_page_leads_to_pages_of_this_server(client: Client) -> None:
    person("root", is_staff=True, is_superuser=True)
    assert client.get("/accounts/signup/").status_code == 404
    response = client.get("/admin/accounts/user/", follow=True)
    client.post("/admin/login/", {"username": "root", "password": PASSWORD})
    assert response.redirect_chain[-1][0] == "/accounts/login/?next=/admin/accounts/user/"
    assert signed_in_name(client) == ""

    assert sign_in(client, "root", next="/admin/").url == "/admin/"
    client.logout()
    assert sign_in(client, "root", next="https://evil.example/").url == "/console/"


@pytest.mark.parametrize("command", [["user", "password", "root"], ["admin", "reset-password"]])
def test_a_new_password_by_command_ends_a_lockout(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    person("Root", is_superuser=True)
    person("root", is_superuser=True)
    lock("ROOT")
    assert is_locked(sign_in(Client(), "ROOT", "wrong"))

    words = [*command, "--user", "root"] if command[0] == "admin" else command
    assert main(words) == 0

    client = Client(REMOTE_ADDR="198.51.100.7")
    sign_in(client, "root", capsys.readouterr().out.strip())
    assert signed_in_name(client) == "root"


def test_five_wrong_passwords_lock_the_user_out_everywhere(client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    person("alice")
    for number in range(5):
        sign_in(client, "alice", "wrong", headers={"host": f"name{number}.example"})

    assert is_locked(sign_in(client, "alice", headers={"host": "another.example"}))
    assert is_locked(sign_in(Client(REMOTE_ADDR="198.51.100.7"), "ALICE"))


def test_one_address_may_try_ten_wrong_passwords_in_a_minute(client: Client, alice: User) -> None:
    for _ in range(12):
        sign_in(client, "alice")
        client.logout()
    sign_in(client, "alice")
    assert signed_in_name(client) == "alice"

    for number in range(10):
        sign_in(Client(REMOTE_ADDR="198.51.100.7"), f"name{number}", "wrong")
    refused = sign_in(Client(REMOTE_ADDR="198.51.100.7"), "alice")
    elsewhere = Client(REMOTE_ADDR="203.0.113.9")
    sign_in(elsewhere, "alice")
    assert is_locked(refused)
    assert signed_in_name(elsewhere) == "alice"


@pytest.mark.stores
def test_attempts_are_counted_across_processes(settings: Any) -> None:
    cache.set("count", [1.0], 60)

    assert settings.CACHES["default"]["LOCATION"] in connection.introspection.table_names()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM vinery_cache")
        assert cursor.fetchone() == (1,)


@pytest.fixture
def e_mail(settings: Any) -> None:
    settings.VINERY_PASSWORD_RESET = True
    settings.VINERY_PUBLIC_URL = "https://vinery.example"


def _ask_for_reset(client: Client, address: str) -> None:
    response = client.post(
        reverse("account_reset_password"), {"email": address}, headers={"host": "localhost"}
    )
    assert response.url == reverse("account_reset_password_done")


def _follow_the_mail(client: Client, new: str) -> str:
    """Set a new password by the link in the mail, and return the link."""
    (letter,) = mail.outbox
    assert letter.subject == "Vinery: set a new password"
    (link,) = re.findall(r"https://vinery\.example(/\S+)", letter.body)
    form = client.get(link, follow=True)
    client.post(form.request["PATH_INFO"], {"password1": new, "password2": new})
    return str(link)


def test_a_link_in_a_mail_sets_a_new_password_once_and_signs_in(
    client: Client, e_mail: None
) -> None:
    person("alice", email="alice@example.com")
    _ask_for_reset(client, "alice@example.com")
    lock("alice")
    assert is_locked(sign_in(Client(), "alice", "wrong"))

    new = "another horse altogether"
    link = _follow_the_mail(client, new)

    assert signed_in_name(client) == "alice"
    client.logout()
    assert "This link no longer works" in Client().get(link, follow=True).content.decode()
    sign_in(client, "alice", new)
    assert signed_in_name(client) == "alice"
    entry = AuditEntry.objects.get(action="user.password")
    assert (entry.actor, entry.target, entry.after) == ("anonymous", "alice", {"by": "link"})
    assert new not in str(AuditEntry.objects.values())


def test_a_link_does_not_replace_the_second_factor(client: Client, e_mail: None) -> None:
    secret = give_factor(person("alice", email="alice@example.com"))
    _ask_for_reset(client, "alice@example.com")

    _follow_the_mail(client, "another horse altogether")
    assert signed_in_name(client) == ""
    assert client.get("/console/").status_code == 302

    enter_code(client, code_of(secret))
    assert signed_in_name(client) == "alice"


def test_no_mail_goes_to_users_without_a_password_or_sign_in(client: Client, e_mail: None) -> None:
    User.objects.create_user("alice", email="alice@example.com")  # of the issuer
    person("gone", email="gone@example.com", is_active=False)
    person("robot", email="robot@example.com", is_service=True)

    for name in ("alice", "gone", "robot", "unknown"):
        _ask_for_reset(client, f"{name}@example.com")

    assert mail.outbox == []


def test_sign_in_pages_are_not_cached_and_name_administrators(client: Client) -> None:
    response = client.get(reverse("account_login"))
    assert response.headers["Cache-Control"] == "no-store, private"
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", text_of(response))
    assert not re.search(r"\son\w+=", text_of(response))
    assert hasattr(client.get("/accounts/login/").wsgi_request, "allauth")
    assert not hasattr(client.get("/v1/models").wsgi_request, "allauth")
    assert not hasattr(client.get("/admin/").wsgi_request, "allauth")

    page = client.get(reverse("account_reset_password")).content.decode()
    assert "ask one of its administrators" in page
    client.post(reverse("account_reset_password"), {"email": "alice@example.com"})
    assert mail.outbox == []


def test_a_user_and_a_changed_password_end_the_other_sessions(client: Client, alice: User) -> None:
    elsewhere = Client(headers={"user-agent": "The other browser"})
    sign_in(elsewhere, "alice")
    sign_in(client, "alice")
    page = client.get(reverse("usersessions_list")).content.decode()
    assert "The other browser" in page
    assert "this one" in page
    client.post(reverse("usersessions_list"))
    assert signed_in_name(client) == "alice"
    assert signed_in_name(elsewhere) == ""

    elsewhere = Client()
    sign_in(elsewhere, "alice")
    assert change_password(client, "another horse altogether").status_code == 302
    assert signed_in_name(client) == "alice"
    assert signed_in_name(elsewhere) == ""


def cookie_of(client: Client, user: User) -> Any:
    return client.cookies[f"known_device_{user.pk}"]


@pytest.fixture
def known(client: Client) -> Client:
    """A browser in which alice has signed in before."""
    person("alice")
    sign_in(client, "alice", REMOTE_ADDR=HOME)
    client.post("/accounts/logout/")
    assert signed_in_name(client) == ""
    return client


def test_wrong_passwords_of_strangers_do_not_lock_out_a_known_device(known: Client) -> None:
    lock("alice")
    for number in range(10):  # in the same network
        sign_in(Client(REMOTE_ADDR=HOME), f"name{number}", "wrong")
    assert is_locked(sign_in(Client(REMOTE_ADDR=HOME), "alice"))

    sign_in(known, "alice", REMOTE_ADDR=HOME)

    assert signed_in_name(known) == "alice"


def test_a_known_device_is_one_of_its_user_for_90_days(
    known: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = User.objects.get(username="alice"), person("bob")
    lock("bob")
    assert is_locked(sign_in(known, "bob"))
    known.cookies[f"known_device_{bob.pk}"] = cookie_of(known, alice).value
    assert is_locked(sign_in(known, "bob"))

    cookie = cookie_of(known, alice)
    assert cookie["max-age"] == attempts._LIFE_S == 90 * 24 * 3600
    lock("alice")
    monkeypatch.setattr(attempts, "_LIFE_S", -1)
    assert is_locked(sign_in(known, "alice"))


def test_a_new_password_makes_all_devices_unknown(known: Client) -> None:
    set_password(User.objects.get(username="alice"), "another horse battery")
    lock("alice")

    assert is_locked(sign_in(known, "alice", "another horse battery"))


def test_a_cookie_without_our_signature_is_ignored(client: Client, alice: User) -> None:
    lock("alice")
    for value in ("", "x", "a.b.c:d:e", "\x00", TimestampSigner(salt="other").sign("a.b")):
        client.cookies[f"known_device_{alice.pk}"] = value
        assert is_locked(sign_in(client, "alice")), value


def test_the_cookie_is_for_sign_in_pages_and_not_for_scripts(known: Client, settings: Any) -> None:
    cookie = cookie_of(known, User.objects.get(username="alice"))
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/accounts/", True, "Lax")
    assert not cookie["secure"]

    settings.SESSION_COOKIE_SECURE = True
    sign_in(known, "alice", secure=True)

    assert cookie_of(known, User.objects.get(username="alice"))["secure"]


def test_wrong_passwords_lock_out_no_user_with_a_second_factor(client: Client, alice: User) -> None:
    secret = give_factor(alice)
    lock("alice")
    assert is_locked(sign_in(Client(REMOTE_ADDR=STRANGER), "alice"))

    assert not is_locked(sign_in(client, "alice", REMOTE_ADDR=HOME))
    # A device is known only after the second factor.
    assert f"known_device_{alice.pk}" not in client.cookies
    enter_code(client, code_of(secret))

    assert signed_in_name(client) == "alice"
    assert f"known_device_{alice.pk}" in client.cookies
