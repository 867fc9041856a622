"""The second factor: setup, use, recovery and enforcement."""

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import connections
from django.test import AsyncClient, Client
from django.test.client import ClientHandler
from django.urls import reverse
from signin_helpers import (
    code_of,
    confirm_password,
    enter_code,
    give_factor,
    is_locked,
    offered_secret,
    person,
    recovery_codes,
    set_up_factor,
    sign_in,
    signed_in_name,
)

from vinery_accounts.models import AuditEntry, User
from vinery_accounts.signin.attempts import has_second_factor
from vinery_accounts.signin.factors import reset_second_factor

pytestmark = pytest.mark.django_db


def five_minutes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sign-in be too old to count as a proof of the user."""
    later = SimpleNamespace(time=lambda: time.time() + 301)
    monkeypatch.setattr("vinery_accounts.signin.people.time", later)


def test_setup_asks_for_the_password_again_some_minutes_after_the_sign_in(
    client: Client, monkeypatch: pytest.MonkeyPatch, alice: User
) -> None:
    sign_in(client, "alice")
    assert client.get(reverse("mfa_activate_totp")).status_code == 200

    five_minutes_later(monkeypatch)

    page = client.get(reverse("mfa_activate_totp"), follow=True)
    assert page.redirect_chain[-1][0].startswith(reverse("account_reauthenticate"))


def test_setup_needs_a_code_and_returns_codes_to_save(client: Client, alice: User) -> None:
    sign_in(client, "alice")
    page = client.get(reverse("mfa_activate_totp"))
    secret = page.context["form"].secret
    assert page.context["totp_svg_data_uri"].startswith("data:image/svg+xml;base64,")
    done = set_up_factor(client, code_of(secret), follow=True)
    assert has_second_factor(alice)
    shown = re.search(r'<pre id="recovery-codes">([^<]*)</pre>', done.content.decode())
    assert shown is not None
    assert shown[1].split() == recovery_codes(alice)
    assert len(recovery_codes(alice)) == 10
    assert "I have saved them" in done.content.decode()


def test_after_a_reset_by_admins_the_password_is_enough(client: Client, alice: User) -> None:
    give_factor(alice)
    client.force_login(person("root", is_staff=True, is_superuser=True))
    response = client.post(f"/console/users/{alice.pk}/second_factor_off/", follow=True)
    assert "alice is without a second factor." in response.content.decode()
    assert not has_second_factor(alice)
    assert not reset_second_factor(alice)
    client.logout()
    sign_in(client, "alice")
    assert signed_in_name(client) == "alice"


def test_only_a_right_code_sets_a_factor_up_and_works_once(client: Client, alice: User) -> None:
    sign_in(client, "alice")
    confirm_password(client)
    secret = offered_secret(client)
    set_up_factor(client, code_of(secret, periods_from_now=9))
    assert not has_second_factor(alice)
    code = code_of(secret)
    set_up_factor(client, code)

    thief = Client()
    sign_in(thief, "alice")
    enter_code(thief, code)
    assert signed_in_name(thief) == ""

    enter_code(thief, code_of(secret, periods_from_now=1))
    assert signed_in_name(thief) == "alice"


def test_turning_the_factor_off_needs_a_confirmation_and_deletes_the_recovery_codes(
    client: Client, monkeypatch: pytest.MonkeyPatch, alice: User
) -> None:
    secret = give_factor(alice)
    sign_in(client, "alice")
    enter_code(client, code_of(secret))
    five_minutes_later(monkeypatch)

    client.post(reverse("mfa_deactivate_totp"))
    assert has_second_factor(alice)
    monkeypatch.undo()
    client.post(reverse("mfa_deactivate_totp"))

    assert not Authenticator.objects.filter(user=alice).exists()


def test_the_code_and_not_the_password_alone_leads_to_the_page(client: Client) -> None:
    secret = give_factor(person("root", is_staff=True, is_superuser=True))
    response = sign_in(client, "root", next="/admin/")
    half_way = client.session.session_key
    assert response.url.startswith(reverse("mfa_authenticate"))
    assert signed_in_name(client) == ""
    assert client.get("/admin/").status_code == 302

    response = enter_code(client, code_of(secret))

    assert response.url == "/admin/"
    assert client.get("/admin/").status_code == 200
    assert client.session.session_key != half_way


@pytest.mark.parametrize("periods", [-1, 0, 1])
def test_a_code_of_a_phone_that_is_half_a_minute_off_can_be_used_only_once(
    client: Client, monkeypatch: pytest.MonkeyPatch, periods: int
) -> None:
    now_s = time.time()  # so that no code expires before its use
    for module in ("signin_helpers", "allauth.mfa.totp.internal.auth"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(time=lambda: now_s))
    secret = give_factor(person("alice"))
    code = code_of(secret, periods_from_now=periods)
    sign_in(client, "alice")
    enter_code(client, code)
    assert signed_in_name(client) == "alice"
    # Allauth forgets the used code after one period, when the code may still be valid.
    cache.delete(f"allauth.mfa.totp.used?user={User.objects.get().pk}&code={code}")

    thief = Client()
    sign_in(thief, "alice")
    response = enter_code(thief, f"{code[:3]} {code[3:]}")

    assert "Incorrect code" in response.content.decode()
    assert signed_in_name(thief) == ""


def test_any_recovery_code_works_once_and_none_is_guessed(client: Client, alice: User) -> None:
    secret = give_factor(alice)
    code = recovery_codes(alice)[3]
    sign_in(client, "alice")
    enter_code(client, code)
    assert signed_in_name(client) == "alice"
    thief = Client()
    sign_in(thief, "alice")
    enter_code(thief, code)
    assert signed_in_name(thief) == ""
    assert len(recovery_codes(alice)) == 9
    entry = AuditEntry.objects.get(action="user.recovery_code_used")
    assert (entry.actor, entry.after) == ("alice", {"num_left": 9})
    first = AuditEntry.objects.get(action="user.sign_in")
    assert first.after == {"with": ["password", "recovery_codes"]}
    assert code not in str(AuditEntry.objects.values())

    sign_in(thief, "alice")
    for _ in range(4):  # and the code that was used already
        enter_code(thief, code_of(secret, periods_from_now=9))
    assert is_locked(enter_code(thief, code_of(secret)))
    assert signed_in_name(thief) == ""


@pytest.fixture
def required(settings: Any) -> Any:
    """Set who must have a factor: middleware reads the setting once, when the server starts."""

    def demand(of: str) -> Client:
        settings.VINERY_REQUIRE_2FA = of
        client = Client()
        client.handler = ClientHandler(enforce_csrf_checks=False)
        return client

    return demand


def test_a_user_who_needs_a_factor_gets_only_the_setup_pages(required: Any) -> None:
    client = required("staff")
    root = person("root", is_staff=True, is_superuser=True)
    sign_in(client, "root")

    assert client.get("/admin/").url == reverse("mfa_activate_totp")
    refused = client.get("/api/anything")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "second_factor_required"

    confirm_password(client)
    secret = offered_secret(client)
    set_up_factor(client, code_of(secret))
    assert has_second_factor(root)
    assert client.get("/admin/").status_code == 200


def test_the_setting_selects_users_but_no_paths_of_keys(required: Any, alice: User) -> None:
    for of, is_enforced in (("off", False), ("staff", False), ("all", True)):
        client = required(of)
        sign_in(client, "alice")
        assert (client.get("/").url == reverse("mfa_activate_totp")) == is_enforced

    client, anonymous = required("all"), required("all")
    sign_in(client, "alice")
    for path in ("/v1/models", "/v3/models/tiny", "/v1/nothing"):
        without, answer = anonymous.get(path), client.get(path)
        assert (answer.status_code, answer.content) == (404, without.content)


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
async def test_the_asynchronous_server_demands_the_factor_too(settings: Any) -> None:
    settings.VINERY_REQUIRE_2FA = "all"
    client = AsyncClient()
    await client.aforce_login(await sync_to_async(person)("alice"))

    held = await client.get("/admin/")
    page = await client.get(reverse("account_overview"))
    # Close the connections of the other thread, because PostgreSQL drops no database in use.
    await sync_to_async(connections.close_all)()

    assert held.url == reverse("mfa_activate_totp")
    assert page.status_code == 200
    assert page.headers["Cache-Control"] == "no-store, private"
