"""Sessions: the database alone reveals nothing of them and opens none."""

from __future__ import annotations

import base64
import zlib
from http.cookies import Morsel
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.core import mail, signing
from django.core.signing import Signer
from django.db import connection, connections
from django.test import AsyncClient, Client
from django.urls import reverse
from signin_helpers import PASSWORD, code_of, enter_code, give_factor, person, sign_in, who

from accounts.models import User
from accounts.signin.sessions import EncryptedSerializer

pytestmark = pytest.mark.django_db
COOKIE = django_settings.SESSION_COOKIE_NAME


def with_cookie(value: str) -> Client:
    client = Client()
    client.cookies[COOKIE] = value
    return client


def cookie_of(client: Client) -> str:
    return client.cookies[COOKIE].value


def set_by(response: Any) -> Morsel[str]:
    return response.cookies[COOKIE]


def everything_in_the_database() -> str:
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        rows = []
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            rows += cursor.fetchall()
    return "\n".join(map(str, rows))


def contents_in_a_dump() -> bytes:
    """Of the one session, as far as one gets without Django's key."""
    data = Session.objects.get().session_data.rpartition(":")[0].rpartition(":")[0]
    text = data.removeprefix(".")
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return packed if text == data else zlib.decompress(packed)


# -- What a dump has


def test_no_value_in_the_database_is_a_cookie_that_opens_a_session(client: Client) -> None:
    person("root", is_staff=True, is_superuser=True)
    sign_in(client, "root")
    assert who(client) == "root"

    rows = Session.objects.values_list("session_key", "session_data")
    values = {value for row in rows for value in row}
    values |= set(UserSession.objects.values_list("session_key", flat=True))
    assert len(values) == 2

    for value in values:
        thief = with_cookie(value)
        assert who(thief) == ""
        assert thief.get("/admin/").status_code == 302
        assert thief.get("/api/users/").status_code == 401
    assert cookie_of(client) not in everything_in_the_database()


@pytest.mark.parametrize(
    "forge",
    [
        lambda key: f"{key}:",
        lambda key: f"{key}:{'A' * 43}",
        lambda key: Signer(key="another key", salt="vinery session cookies").sign(key),
        lambda key: Signer().sign(key),
        lambda key: signing.dumps(key),
        lambda key: "",
        lambda key: ":",
        lambda key: f"{key}:\xe9",
    ],
)
def test_a_signature_that_is_not_ours_is_none(client: Client, forge: Any) -> None:
    person("alice")
    sign_in(client, "alice")
    key = Session.objects.get().session_key

    assert who(with_cookie(forge(key))) == ""


def test_the_signature_of_one_session_opens_no_other(client: Client) -> None:
    person("alice")
    person("bob")
    sign_in(client, "alice")
    hers = Session.objects.get().session_key
    his = Client()
    sign_in(his, "bob")

    signature = cookie_of(his).partition(":")[2]

    assert who(with_cookie(f"{hers}:{signature}")) == ""


def test_what_a_session_remembers_cannot_be_read_in_its_row(client: Client) -> None:
    person("alice")
    sign_in(client, "alice")
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})
    secret = client.get(reverse("mfa_activate_totp")).context["form"].secret

    assert secret in str(client.session.items())
    assert secret.encode() not in contents_in_a_dump()
    assert b"_auth_user_id" not in contents_in_a_dump()


def test_a_link_that_resets_a_password_is_nowhere_in_the_database(
    client: Client, settings: Any
) -> None:
    settings.VINERY_PASSWORD_RESET = True
    person("alice", email="alice@example.com")
    client.post(reverse("account_reset_password"), {"email": "alice@example.com"})
    [link] = [word for word in mail.outbox[0].body.split() if "/reset/key/" in word]
    key = link.rstrip("/").rpartition("-")[2]
    client.get("/" + link.split("/", 3)[3], follow=True)

    assert key in str(client.session.items())
    assert key not in everything_in_the_database()
    assert key.encode() not in contents_in_a_dump()


def test_a_row_that_was_written_otherwise_is_an_empty_session(client: Client) -> None:
    person("alice")
    sign_in(client, "alice")
    row = Session.objects.get()
    row.session_data = signing.dumps(
        dict(client.session.items()), salt="django.contrib.sessions.SessionStore"
    )
    row.save()

    assert who(client) == ""


# -- What browsers are given


def test_the_cookie_keeps_its_flags_and_its_age(client: Client, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = True
    person("alice")

    response = sign_in(client, "alice")

    cookie = set_by(response)
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"]) == (True, True, "Lax")
    assert (cookie["path"], cookie["max-age"]) == ("/", settings.SESSION_COOKIE_AGE)
    assert cookie["expires"]
    assert "Cookie" in response.headers["Vary"]
    assert cookie.value.startswith(f"{Session.objects.get().session_key}:")


def test_a_cookie_from_before_an_upgrade_is_taken_unavailable_and_replaced_at_sign_in(
    client: Client,
) -> None:
    person("alice")
    sign_in(client, "alice")
    old = with_cookie(Session.objects.get().session_key)

    gone = set_by(old.get(reverse("account_login")))
    assert (gone.value, gone["max-age"]) == ("", 0)

    sign_in(old, "alice")
    assert who(old) == "alice"


def test_logging_out_takes_the_cookie_unavailable_and_what_is_left_of_it_opens_nothing(
    client: Client,
) -> None:
    person("alice")
    sign_in(client, "alice")
    kept = cookie_of(client)

    response = client.post(reverse("account_logout"))

    assert (set_by(response).value, set_by(response)["max-age"]) == ("", 0)
    assert who(with_cookie(kept)) == ""
    assert not Session.objects.exists()


def test_a_new_key_of_django_opens_the_sessions_of_the_old_one_as_long_as_that_is_named(
    client: Client, settings: Any
) -> None:
    secret = give_factor(person("alice"))
    sign_in(client, "alice")
    enter_code(client, code_of(secret))
    kept = cookie_of(client)

    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "a new one, made today, which is long and random enough"
    assert who(with_cookie(kept)) == "alice"

    settings.SECRET_KEY_FALLBACKS = []
    assert who(with_cookie(kept)) == ""


def test_sessions_are_ended_from_elsewhere(client: Client) -> None:
    person("alice")
    sign_in(client, "alice")
    other = Client()
    sign_in(other, "alice")
    assert (who(client), who(other)) == ("alice", "alice")

    client.post(reverse("usersessions_list"))

    assert (who(client), who(other)) == ("alice", "")


@pytest.mark.django_db(transaction=True)
async def test_it_is_the_same_in_the_server_s_asynchronous_way() -> None:
    client = AsyncClient()
    await sync_to_async(person)("alice")
    await client.post(reverse("account_login"), {"login": "alice", "password": PASSWORD})
    page = await client.get(reverse("account_overview"))
    key = await sync_to_async(lambda: Session.objects.get().session_key)()
    thief = AsyncClient()
    thief.cookies[COOKIE] = key
    refused = await thief.get(reverse("account_overview"))
    # Of the thread in which all that went on: PostgreSQL drops no database that is in use.
    await sync_to_async(connections.close_all)()

    assert page.status_code == 200
    assert cookie_of(client).startswith(f"{key}:")
    assert refused.status_code == 302


def test_an_encrypted_session_is_read_again_whatever_its_letters() -> None:
    session = {"path": "/\N{SNOWMAN}", "steps": [{"method": "password", "at": 1.5}], "n": None}

    assert EncryptedSerializer().loads(EncryptedSerializer().dumps(session)) == session


def test_signing_in_by_force_in_tests_signs_too(client: Client) -> None:
    alice: User = person("alice")
    client.force_login(alice)

    assert who(client) == "alice"
    assert client.session["_auth_user_id"] == str(alice.pk)
