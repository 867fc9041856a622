"""One's own account: profile, passkeys, sessions, keys and the limits that hold for oneself."""

from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.test import Client, RequestFactory
from pages import limit_of, page, sent, signed_in
from signin_helpers import person, sign_in, signed_in_name

from tests.tables import table
from vinery_accounts.models import Limit, LimitScope, User
from vinery_accounts.signin import passkeys

pytestmark = pytest.mark.django_db


@table(
    "public, host, is_secure, why",
    [
        ("", "localhost:8000", False, ""),
        ("", "vinery.example", True, ""),
        *(("", each, False, "over https") for each in ("vinery.example", "127.0.0.1:8000")),
        ("", "10.1.2.3", True, "names of hosts"),
        ("https://vinery.example", "10.1.2.3", False, ""),
        ("http://vinery.example", "10.1.2.3", True, "over https"),
        ("http://vinery.example", "localhost", False, ""),
    ],
)
def test_a_page_says_why_browsers_make_no_passkey_there(
    settings: Any, public: str, host: str, is_secure: bool, why: str
) -> None:
    settings.VINERY_PUBLIC_URL, settings.ALLOWED_HOSTS = public, ["*"]
    request = RequestFactory(headers={"host": host}).get("/", secure=is_secure)
    assert (why in passkeys.why_none(request)) if why else not passkeys.why_none(request)


def test_a_person_changes_the_name_and_an_address_that_nobody_has_confirmed(
    client: Client, settings: Any
) -> None:
    user = person("alice", email="alice@ours.example")
    sign_in(client, "alice")

    text = sent(client, "/accounts/", {"first_name": "Alice", "email": "alice@ours.example"})
    user.refresh_from_db()
    assert "Your profile is changed." in text
    assert (user.first_name, user.is_email_confirmed) == ("Alice", True)

    sent(client, "/accounts/", {"first_name": "Alice", "email": "new@ours.example"})
    user.refresh_from_db()
    assert (user.email, user.is_email_confirmed) == ("new@ours.example", False)

    # Who only found the browser open gets the question for the password.
    finder = signed_in(user)
    assert finder.post("/accounts/", {"email": "finder@x.example"}).url.startswith(
        "/accounts/reauthenticate/"
    )
    assert User.objects.get().email == "new@ours.example"


def test_a_person_ends_one_session_of_their_own(client: Client) -> None:
    person("alice"), person("bob")
    phone, stranger = Client(), Client()
    for each, name in ((client, "alice"), (phone, "alice"), (stranger, "bob")):
        sign_in(each, name)
        page(each, "/accounts/sessions/")  # which allauth lists from the next page on
    of_phone = UserSession.objects.get(session_key=phone.session.session_key)

    assert stranger.post(f"/accounts/sessions/{of_phone.pk}/end/").status_code == 404
    assert signed_in_name(phone) == "alice"
    assert "The session is ended." in sent(client, f"/accounts/sessions/{of_phone.pk}/end/")

    assert (signed_in_name(phone), signed_in_name(client)) == ("", "alice")


def test_the_limits_of_others_are_not_among_those_that_hold_for_me(
    owner: User, bob: User, ours: Any
) -> None:
    limit_of(owner, "requests", "day", 111)
    limit_of(bob, "requests", "day", 222)
    Limit.objects.create(metric="requests", window="day", amount=333, scope=LimitScope.PLATFORM)

    text = page(signed_in(owner), "/console/account/")

    assert ("of 111<" in text, "of 222<" in text, "of 333<" in text) == (True, False, True)
