"""Sessions: a copy of the database reveals no contents and contains no valid cookie."""

import base64
import zlib
from http.cookies import Morsel
from typing import Any

import pytest
import signin_helpers as signin
from allauth.usersessions.models import UserSession
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.core import mail, signing
from django.core.signing import Signer
from django.db import connection, connections
from django.test import AsyncClient, Client
from django.urls import reverse

from vinery_accounts.models import User
from vinery_accounts.signin.sessions import EncryptedSerializer

pytestmark = pytest.mark.django_db
COOKIE = django_settings.SESSION_COOKIE_NAME


@pytest.fixture
def alice(client: Client) -> User:
    """A user who is signed in with the client."""
    made = signin.person("alice")
    signin.sign_in(client, "alice")
    return made


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
    """Return as much of the only session as can be read without Django's key."""
    data = Session.objects.get().session_data.rpartition(":")[0].rpartition(":")[0]
    text = data.removeprefix(".")
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return packed if text == data else zlib.decompress(packed)


def test_no_value_in_the_database_is_a_valid_cookie(client: Client) -> None:
    signin.person("root", is_staff=True, is_superuser=True)
    signin.sign_in(client, "root")
    assert signin.signed_in_name(client) == "root"

    rows = Session.objects.values_list("session_key", "session_data")
    values = {value for row in rows for value in row}
    values |= set(UserSession.objects.values_list("session_key", flat=True))
    assert len(values) == 2

    for value in values:
        thief = with_cookie(value)
        assert signin.signed_in_name(thief) == ""
        assert thief.get("/admin/").status_code == 302
        assert thief.get("/api/users/").status_code == 401
    assert cookie_of(client) not in everything_in_the_database()


def test_a_signature_is_valid_for_our_key_and_one_session(client: Client, alice: User) -> None:
    key = Session.objects.get().session_key
    for forged in (
        f"{key}:",
        f"{key}:{'A' * 43}",
        Signer(key="another key", salt="vinery session cookies").sign(key),
        Signer().sign(key),
        signing.dumps(key),
        "",
        ":",
        f"{key}:\xe9",
    ):
        assert signin.signed_in_name(with_cookie(forged)) == "", forged

    signin.person("bob")
    hers = Session.objects.get().session_key
    his = Client()
    signin.sign_in(his, "bob")
    signature = cookie_of(his).partition(":")[2]
    assert signin.signed_in_name(with_cookie(f"{hers}:{signature}")) == ""


def test_the_contents_of_a_session_are_encrypted_or_ignored(client: Client, alice: User) -> None:
    signin.confirm_password(client)
    secret = signin.offered_secret(client)
    assert secret in str(client.session.items())
    assert secret.encode() not in contents_in_a_dump()
    assert b"_auth_user_id" not in contents_in_a_dump()

    row = Session.objects.get()
    row.session_data = signing.dumps(
        dict(client.session.items()), salt="django.contrib.sessions.SessionStore"
    )
    row.save()
    assert signin.signed_in_name(client) == ""

    session = {"path": "/\N{SNOWMAN}", "steps": [{"method": "password", "at": 1.5}], "n": None}
    assert EncryptedSerializer().loads(EncryptedSerializer().dumps(session)) == session


def test_a_password_reset_link_is_not_in_the_database(client: Client, settings: Any) -> None:
    settings.VINERY_PASSWORD_RESET = True
    signin.person("alice", email="alice@example.com")
    client.post(reverse("account_reset_password"), {"email": "alice@example.com"})
    [link] = [word for word in mail.outbox[0].body.split() if "/reset/key/" in word]
    key = link.rstrip("/").rpartition("-")[2]
    client.get("/" + link.split("/", 3)[3], follow=True)

    assert key in str(client.session.items())
    assert key not in everything_in_the_database()
    assert key.encode() not in contents_in_a_dump()


def test_the_cookie_has_its_flags_and_its_age(client: Client, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = True
    signin.person("alice")

    response = signin.sign_in(client, "alice")

    cookie = set_by(response)
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"]) == (True, True, "Lax")
    assert (cookie["path"], cookie["max-age"]) == ("/", settings.SESSION_COOKIE_AGE)
    assert cookie["expires"]
    assert "Cookie" in response.headers["Vary"]
    assert cookie.value.startswith(f"{Session.objects.get().session_key}:")


def test_logging_out_deletes_the_cookie_and_the_session(client: Client, alice: User) -> None:
    kept = cookie_of(client)

    response = client.post(reverse("account_logout"))

    assert (set_by(response).value, set_by(response)["max-age"]) == ("", 0)
    assert signin.signed_in_name(with_cookie(kept)) == ""
    assert not Session.objects.exists()


def test_sessions_continue_while_the_old_key_is_a_fallback(client: Client, settings: Any) -> None:
    secret = signin.give_factor(signin.person("alice"))
    signin.sign_in(client, "alice")
    signin.enter_code(client, signin.code_of(secret))
    kept = cookie_of(client)

    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "a new one, made today, which is long and random enough"
    assert signin.signed_in_name(with_cookie(kept)) == "alice"

    settings.SECRET_KEY_FALLBACKS = []
    assert signin.signed_in_name(with_cookie(kept)) == ""


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
async def test_the_asynchronous_server_signs_cookies_too() -> None:
    client = AsyncClient()
    await sync_to_async(signin.person)("alice")
    await client.post(reverse("account_login"), {"login": "alice", "password": signin.PASSWORD})
    page = await client.get(reverse("account_overview"))
    key = await sync_to_async(lambda: Session.objects.get().session_key)()
    thief = AsyncClient()
    thief.cookies[COOKIE] = key
    refused = await thief.get(reverse("account_overview"))
    # Close the connections of the other thread, because PostgreSQL drops no database in use.
    await sync_to_async(connections.close_all)()

    assert page.status_code == 200
    assert cookie_of(client).startswith(f"{key}:")
    assert refused.status_code == 302
