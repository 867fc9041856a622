"""Sign-in with a password: accepted and refused users, and the limits of attempts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from signin_helpers import PASSWORD, WAIT, person, sign_in, signed_in_name

from vinery.cli import main
from vinery_accounts.models import User
from vinery_accounts.services.changes import set_password

pytestmark = pytest.mark.django_db


def test_a_user_with_the_right_password_gets_a_new_session(client: Client) -> None:
    person("alice")
    client.get(reverse("account_login"))
    client.session["planted"] = "by an attacker"
    before = client.session.session_key

    response = sign_in(client, "alice")

    assert response.status_code == 302
    assert signed_in_name(client) == "alice"
    assert client.session.session_key != before


def test_a_wrong_password_is_refused_without_a_reason(client: Client) -> None:
    person("alice")

    wrong = sign_in(client, "alice", "not it").content.decode()
    unknown = sign_in(client, "unknown", "not it").content.decode()

    assert "username and/or password you specified are not correct" in wrong
    assert "username and/or password you specified are not correct" in unknown
    assert signed_in_name(client) == ""


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_service": True}])
def test_a_user_who_may_not_sign_in_is_answered_like_an_unknown_one(
    client: Client, fields: dict[str, bool]
) -> None:
    person("robot", is_staff=True, **fields)

    response = sign_in(client, "robot")

    assert "username and/or password" in response.content.decode()
    assert signed_in_name(client) == ""


@pytest.mark.parametrize("field", ["is_active", "is_service"])
def test_a_deactivated_user_loses_the_session_at_once(client: Client, field: str) -> None:
    alice = person("alice")
    sign_in(client, "alice")
    assert signed_in_name(client) == "alice"

    setattr(alice, field, field != "is_active")
    alice.save()

    assert signed_in_name(client) == ""


def test_there_is_no_page_to_sign_up(client: Client) -> None:
    assert client.get("/accounts/signup/").status_code == 404


def test_the_admin_redirects_to_the_sign_in_page(client: Client) -> None:
    response = client.get("/admin/accounts/user/", follow=True)

    assert response.redirect_chain[-1][0] == "/accounts/login/?next=/admin/accounts/user/"


def test_the_admin_s_own_login_takes_no_password(client: Client) -> None:
    person("root", is_staff=True, is_superuser=True)

    client.post("/admin/login/", {"username": "root", "password": PASSWORD})

    assert signed_in_name(client) == ""


def test_the_sign_in_leads_to_the_requested_page_and_to_no_other_server(client: Client) -> None:
    person("root", is_staff=True)
    assert sign_in(client, "root", next="/admin/").url == "/admin/"
    client.logout()

    assert sign_in(client, "root", next="https://evil.example/").url == "/console/"


def test_a_user_without_admin_rights_gets_the_console_and_not_the_admin(
    client: Client,
) -> None:
    person("alice")

    assert sign_in(client, "alice").url == reverse("console:overview")
    response = client.get("/admin/", follow=True)
    assert response.status_code == 403
    assert "Access denied" in response.content.decode()


# -- Attempts


def test_five_wrong_passwords_lock_the_user_out_even_with_the_right_one(
    client: Client,
) -> None:
    person("alice")
    for _ in range(5):
        sign_in(client, "alice", "wrong")

    response = sign_in(Client(REMOTE_ADDR="198.51.100.7"), "ALICE")

    assert re.search(WAIT, response.content.decode())


@pytest.mark.parametrize("command", [["user", "password", "root"], ["admin", "reset-password"]])
def test_a_new_password_by_command_ends_a_lockout(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    person("Root", is_superuser=True)
    person("root", is_superuser=True)
    close_the_endpoint("ROOT")

    words = [*command, "--user", "root"] if command[0] == "admin" else command
    assert main(words) == 0

    client = Client(REMOTE_ADDR="198.51.100.7")
    sign_in(client, "root", capsys.readouterr().out.strip())
    assert signed_in_name(client) == "root"


def test_a_new_password_in_the_admin_ends_a_lockout(client: Client) -> None:
    alice = person("alice")
    client.force_login(person("root", is_superuser=True, is_staff=True))
    close_the_endpoint("alice")
    new = "another horse altogether"
    form = {"usable_password": "true", "password1": new, "password2": new}

    page = reverse("admin:auth_user_password_change", args=[alice.pk])
    assert client.post(page, form).status_code == 302

    client.logout()
    sign_in(client, "alice", new, REMOTE_ADDR="198.51.100.7")
    assert signed_in_name(client) == "alice"


def close_the_endpoint(username: str) -> None:
    elsewhere = Client(REMOTE_ADDR="203.0.113.9")
    for _ in range(5):
        sign_in(elsewhere, username, "wrong")
    assert re.search(WAIT, sign_in(Client(), username, "wrong").content.decode())


def test_another_host_name_gives_no_more_attempts(client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    person("alice")
    for number in range(5):
        sign_in(client, "alice", "wrong", headers={"host": f"name{number}.example"})

    response = sign_in(client, "alice", headers={"host": "another.example"})

    assert re.search(WAIT, response.content.decode())


def test_one_address_may_try_ten_names_in_a_minute() -> None:
    person("alice")
    for number in range(10):
        sign_in(Client(REMOTE_ADDR="198.51.100.7"), f"name{number}", "wrong")

    refused = sign_in(Client(REMOTE_ADDR="198.51.100.7"), "alice")
    elsewhere = Client(REMOTE_ADDR="203.0.113.9")
    sign_in(elsewhere, "alice")

    assert re.search(WAIT, refused.content.decode())
    assert signed_in_name(elsewhere) == "alice"


def test_right_passwords_do_not_count_as_attempts(client: Client) -> None:
    person("alice")
    for _ in range(12):
        sign_in(client, "alice")
        client.logout()

    sign_in(client, "alice")
    assert signed_in_name(client) == "alice"


def test_attempts_are_counted_across_processes(settings: Any) -> None:
    from django.core.cache import cache
    from django.db import connection

    cache.set("count", [1.0], 60)

    assert settings.CACHES["default"]["LOCATION"] in connection.introspection.table_names()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM vinery_cache")
        assert cursor.fetchone() == (1,)


# -- Passwords


def test_a_changed_password_ends_the_other_sessions(client: Client) -> None:
    person("alice")
    elsewhere = Client()
    sign_in(client, "alice")
    sign_in(elsewhere, "alice")
    new = "another horse altogether"

    response = client.post(
        reverse("account_change_password"),
        {"oldpassword": PASSWORD, "password1": new, "password2": new},
    )

    assert response.status_code == 302
    assert signed_in_name(client) == "alice"
    assert signed_in_name(elsewhere) == ""


def test_without_e_mail_the_reset_page_names_administrators(client: Client) -> None:
    page = client.get(reverse("account_reset_password")).content.decode()

    assert "ask one of its administrators" in page
    client.post(reverse("account_reset_password"), {"email": "alice@example.com"})
    assert mail.outbox == []


@pytest.fixture
def e_mail(settings: Any) -> None:
    settings.VINERY_PASSWORD_RESET = True
    settings.VINERY_PUBLIC_URL = "https://vinery.example"


def _ask_for_reset(client: Client, address: str) -> None:
    response = client.post(
        reverse("account_reset_password"), {"email": address}, headers={"host": "localhost"}
    )
    assert response.url == reverse("account_reset_password_done")


def test_a_link_in_a_mail_sets_a_new_password_once(client: Client, e_mail: None) -> None:
    person("alice", email="alice@example.com")
    _ask_for_reset(client, "alice@example.com")
    (letter,) = mail.outbox
    assert letter.subject == "Vinery: set a new password"
    (link,) = re.findall(r"https://vinery\.example(/\S+)", letter.body)

    close_the_endpoint("alice")

    form = client.get(link, follow=True)
    new = "another horse altogether"
    client.post(form.request["PATH_INFO"], {"password1": new, "password2": new})

    assert "This link no longer works" in Client().get(link, follow=True).content.decode()
    sign_in(client, "alice", new)
    assert signed_in_name(client) == "alice"


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_service": True}])
def test_no_mail_goes_to_users_without_sign_in(
    client: Client, e_mail: None, fields: dict[str, bool]
) -> None:
    person("robot", email="robot@example.com", **fields)

    _ask_for_reset(client, "robot@example.com")

    assert mail.outbox == []


def test_no_mail_gives_a_first_password_to_users_of_the_issuer(
    client: Client, e_mail: None
) -> None:
    User.objects.create_user("alice", email="alice@example.com")

    _ask_for_reset(client, "alice@example.com")
    _ask_for_reset(client, "unknown@example.com")

    assert mail.outbox == []


def test_an_administrator_can_set_a_password_by_command(client: Client) -> None:
    alice = person("alice")
    sign_in(client, "alice")

    set_password(alice, "another horse altogether")

    assert signed_in_name(client) == ""
    sign_in(client, "alice", "another horse altogether")
    assert signed_in_name(client) == "alice"


def test_a_weak_password_and_one_for_a_service_account_are_refused() -> None:
    with pytest.raises(ValidationError, match="at least 12 characters"):
        set_password(person("alice"), "short")
    with pytest.raises(ValidationError, match="does not sign in"):
        set_password(person("robot", is_service=True), "another horse altogether")


# -- Pages


def test_sign_in_pages_are_not_cached_and_run_no_foreign_script(client: Client) -> None:
    response = client.get(reverse("account_login"))

    assert response.headers["Cache-Control"] == "no-store, private"
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", response.content.decode())
    assert not re.search(r"\son\w+=", response.content.decode())


def test_other_requests_do_not_run_the_middleware_of_allauth(client: Client) -> None:
    assert hasattr(client.get("/accounts/login/").wsgi_request, "allauth")
    assert not hasattr(client.get("/v1/models").wsgi_request, "allauth")
    assert not hasattr(client.get("/admin/").wsgi_request, "allauth")


def test_a_user_sees_their_sessions_and_can_end_the_others(client: Client) -> None:
    person("alice")
    elsewhere = Client(headers={"user-agent": "The other browser"})
    sign_in(elsewhere, "alice")
    sign_in(client, "alice")
    page = client.get(reverse("usersessions_list")).content.decode()
    assert "The other browser" in page
    assert "this one" in page

    client.post(reverse("usersessions_list"))

    assert signed_in_name(client) == "alice"
    assert signed_in_name(elsewhere) == ""
