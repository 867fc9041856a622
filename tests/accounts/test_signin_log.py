"""Sign-ins in the audit log, with user, address and result, and without secrets."""

import json
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from oidc_issuer import TestIssuer
from signin_helpers import (
    PASSWORD,
    change_password,
    code_of,
    confirm_password,
    enter_code,
    give_factor,
    offered_secret,
    oidc_sign_in,
    person,
    recovery_codes,
    set_up_factor,
    sign_in,
    signed_in_name,
)

from vinery_accounts.access.audit import verify
from vinery_accounts.models import AuditEntry, User

pytestmark = pytest.mark.django_db

HERE = "192.0.2.7"


@pytest.fixture
def client() -> Client:
    return Client(REMOTE_ADDR=HERE)


def logged(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=f"user.{action}").order_by("number"))


def only(action: str) -> AuditEntry:
    [entry] = logged(action)
    return entry


def a_minute_later() -> None:
    """Forget the time of the entries that are written once a minute."""
    for user in ["", *User.objects.values_list("pk", flat=True)]:
        for action in ("sign_in_failed", "locked_out"):
            cache.delete(f"vinery.{action}:{user}:{HERE}:logged")


def everything() -> str:
    return json.dumps(list(AuditEntry.objects.values()), default=str)


def test_a_sign_in_is_logged_with_the_failures_before_it(client: Client, alice: User) -> None:
    sign_in(client, "alice")
    entry = only("sign_in")
    assert (entry.actor_id, entry.actor, entry.ip) == (alice.pk, "alice", HERE)
    assert (entry.target_kind, entry.target_id) == ("user", str(alice.pk))
    assert entry.after == {"with": ["password"]}
    assert PASSWORD not in everything()

    client.logout()
    for _ in range(3):
        sign_in(client, "alice", "not it")
    sign_in(client, "alice")
    client.logout()
    sign_in(client, "alice")
    _, first, second = logged("sign_in")
    assert first.after == {"with": ["password"], "num_failed_before": 2}
    assert second.after == {"with": ["password"]}


def test_a_second_factor_is_logged_and_a_password_or_a_used_code_is_not(client: Client) -> None:
    code = code_of(give_factor(person("alice")))
    sign_in(client, "alice")
    assert logged("sign_in") == []

    enter_code(client, code)
    assert only("sign_in").after == {"with": ["password", "totp"]}

    thief = Client(REMOTE_ADDR=HERE)
    sign_in(thief, "alice")
    enter_code(thief, code)
    assert len(logged("sign_in")) == len(logged("sign_in_failed")) == 1


def test_a_sign_in_through_the_issuer_is_logged(client: Client, issuer: TestIssuer) -> None:
    oidc_sign_in(client)

    assert signed_in_name(client) == "ada"
    entry = only("sign_in")
    assert (entry.actor, entry.after) == ("ada", {"with": ["issuer"]})

    issuer.userinfo = {"sub": "another user"}
    oidc_sign_in(Client(REMOTE_ADDR=HERE))
    failed = only("sign_in_failed")
    assert (failed.target, failed.after) == ("unknown account", {"at": "issuer", "num_times": 1})


def test_wrong_passwords_and_lockouts_are_logged_once_a_minute(client: Client, alice: User) -> None:
    sign_in(client, "alice", "not it")
    entry = only("sign_in_failed")
    assert (entry.actor_id, entry.actor, entry.ip) == (None, "anonymous", HERE)
    assert (entry.target, entry.target_id) == ("alice", str(alice.pk))
    assert entry.after == {"at": "password", "num_times": 1}
    assert "not it" not in everything()
    for _ in range(3):
        sign_in(client, "alice", "not it")
    assert only("sign_in_failed").after == {"at": "password", "num_times": 1}
    a_minute_later()
    sign_in(client, "alice", "not it")
    assert (logged("sign_in_failed")[1].after or {})["num_times"] == 4

    for _ in range(3):
        sign_in(client, "ALICE", "not it")
    entry = only("locked_out")
    assert (entry.target_id, entry.ip, entry.after) == (str(alice.pk), HERE, {"num_times": 1})
    a_minute_later()
    sign_in(client, "alice")
    assert (logged("locked_out")[1].after or {})["num_times"] == 3


def test_each_user_and_network_counts_and_unknown_names_do_not(client: Client, alice: User) -> None:
    for name in (PASSWORD, *(f"unknown{number}" for number in range(8))):
        sign_in(client, name, PASSWORD)
    entry = only("sign_in_failed")
    assert (entry.target, entry.target_id) == ("unknown account", "")
    assert PASSWORD not in everything()

    person("bob")
    for address in ("192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"):
        for name in ("alice", "bob"):
            sign_in(Client(REMOTE_ADDR=address), name, "not it")
    found = [(entry.target, entry.ip) for entry in logged("sign_in_failed")]
    networks = ("192.0.2.1", "2001:db8::1", "2001:db8:1::1")
    assert found[1:] == [(name, each) for each in networks for name in ("alice", "bob")]


def test_wrong_codes_are_failures_and_cause_a_lockout(client: Client) -> None:
    secret = give_factor(person("alice"))
    sign_in(client, "alice")
    for _ in range(6):
        enter_code(client, code_of(secret, periods_from_now=9))

    [failed] = logged("sign_in_failed")
    assert failed.after == {"at": "second factor", "num_times": 1}
    assert len(logged("locked_out")) == 1
    assert logged("sign_in") == []


def test_refused_users_are_logged_and_the_hash_chain_stays_valid(client: Client) -> None:
    for name, fields in (("gone", {"is_active": False}), ("robot", {"is_service": True})):
        person(name, **fields)
        sign_in(client, name)
    assert [entry.target for entry in logged("sign_in_failed")] == ["gone", "robot"]
    assert logged("sign_in") == []

    secret = give_factor(person("alice"))
    sign_in(client, "alice", "not it")
    sign_in(client, "unknown", "not it")
    sign_in(client, "alice")
    enter_code(client, code_of(secret))
    verdict = verify()
    assert (verdict.broken, verdict.num_entries) == (None, 5)


def test_setup_and_removal_of_a_second_factor_are_logged(
    client: Client, django_capture_on_commit_callbacks: Any, alice: User
) -> None:
    sign_in(client, "alice")
    confirm_password(client)
    secret = offered_secret(client)
    with django_capture_on_commit_callbacks(execute=True):
        set_up_factor(client, code_of(secret))
        codes = recovery_codes(alice)
        client.post(reverse("mfa_generate_recovery_codes"))
    client.post(reverse("mfa_deactivate_totp"))

    assert not Authenticator.objects.exists()
    entries = AuditEntry.objects.exclude(action="user.sign_in").order_by("number")
    assert [entry.action for entry in entries] == [
        *("user.second_factor_on", "user.recovery_codes", "user.recovery_codes"),
        "user.second_factor_off",
    ]
    (whose,) = {(entry.actor, entry.ip, entry.target) for entry in entries}
    assert whose == ("alice", HERE, "alice")
    assert not [each for each in (secret, *codes) if each in everything()]


def test_a_changed_password_is_logged(client: Client, alice: User) -> None:
    sign_in(client, "alice")
    confirm_password(client)
    new = "staple of a battery"
    change_password(client, new)
    entry = only("password")
    assert (entry.actor, entry.ip, entry.target) == ("alice", HERE, "alice")
    assert new not in everything()
