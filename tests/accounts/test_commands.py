"""Everything about people, keys and limits that the command line does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from usage_builders import admission, settlement

import vinery.cli
from accounts import changes
from accounts.actors import Actor, acting_as
from accounts.audit import verify
from accounts.keys import create_key, find_key
from accounts.models import (
    ApiKey,
    AuditEntry,
    KeyState,
    Limit,
    Membership,
    ModelWeight,
    Organization,
    Project,
    RefusedRequest,
    Role,
    User,
)
from accounts.usage.store import store_settlements


@dataclass(frozen=True)
class Told:
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.out)
        return rows


Vinery = Callable[..., Told]


@pytest.fixture
def vinery_(db: None, capsys: pytest.CaptureFixture[str]) -> Vinery:
    """Runs a command in this process, with the database of the test."""

    def run(*words: str) -> Told:
        capsys.readouterr()
        status = vinery.cli.main(list(words))
        return Told(status, *capsys.readouterr())

    return run


@pytest.fixture
def search(db: None) -> Project:
    """The project `search` of `acme`, in which alice is a member."""
    acme = changes.add(Organization(name="acme"))
    project = changes.add(Project(organization=acme, name="search"))
    changes.set_role(User.objects.create_user("alice"), acme, Role.MEMBER)
    return project


# -- Keys


def test_a_key_is_made_for_what_it_is_meant_for(vinery_: Vinery, search: Project) -> None:
    told = vinery_(
        *("key", "create", "--name", "ci", "--user", "alice", "--project", "acme/search"),
        *("--scope", "inference", "--scope", "manage", "--model", "small", "--model", "large"),
        *("--endpoint", "completions", "--network", "10.0.0.0/8", "--expires-in", "2h"),
    )

    key = find_key(told.out.strip())
    assert (key.owner.username, key.project, key.name) == ("alice", search, "ci")
    assert key.scopes == ["inference", "manage"]
    assert key.allowed_models == ["small", "large"]
    assert (key.allowed_endpoints, key.allowed_networks) == (["completions"], ["10.0.0.0/8"])
    assert key.expires_at is not None
    assert timedelta(hours=1) < key.expires_at - timezone.now() <= timedelta(hours=2)


def test_a_key_lives_from_command_to_command(vinery_: Vinery, search: Project) -> None:
    secret = vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip()
    key = find_key(secret)

    assert vinery_("key", "pause", str(key.pk)).out == f"{key} is paused.\n"
    (row,) = vinery_("key", "list", "--json").rows
    assert (row["state"], row["project"], row["organization"]) == ("paused", "search", "acme")
    assert vinery_("key", "resume", key.hint).status == 0
    new = find_key(vinery_("key", "rotate", str(key.pk), "--grace", "1h").out.strip())
    assert find_key(secret).replaced_by == new
    assert vinery_("key", "rotate", str(key.pk)).err.startswith("vinery: This key has been rotated")
    assert vinery_("key", "revoke", str(new.pk)).status == 0
    for action in ("pause", "resume", "rotate"):
        told = vinery_("key", action, str(new.pk))
        assert (told.status, told.out) == (1, "")
        assert "is revoked" in told.err
    assert "ci" in vinery_("key", "list", "--project", "search", "--user", "alice").out
    assert "ci" not in vinery_("key", "list", "--user", "alice", "--project", "acme/none").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--network", "office"), "Networks look like 10.0.0.0/8"),
        (("--project", "none"), "There is no project none. See: vinery project list"),
        (("--user", "bob"), "There is no active user bob."),
        (("--name", "x" * 101), "at most 100 characters"),
    ],
)
def test_a_key_that_cannot_be_is_refused_in_a_line(
    vinery_: Vinery, search: Project, words: tuple[str, ...], message: str
) -> None:
    told = vinery_("key", "create", "--name", "x", "--user", "alice", *words)

    assert (told.status, told.out) == (1, "")
    assert message in told.err
    assert told.err.count("\n") == 1
    assert not ApiKey.objects.exists()


def test_keys_are_found_by_a_part_of_a_name_and_by_their_state(
    vinery_: Vinery, search: Project
) -> None:
    for name in ("nightly", "laptop"):
        vinery_("key", "create", "--name", name, "--user", "alice")
    vinery_("key", "pause", str(ApiKey.objects.get(name="laptop").pk))
    other = changes.add(Project(organization=search.organization, name="other"))
    vinery_("user", "create", "robot", "--service", "--project", "acme/other")
    key = create_key(owner=User.objects.get(username="robot"), project=other, name="ci").key
    changes.set_active(other, is_active=False)

    def names(*words: str) -> list[str]:
        return [row["name"] for row in vinery_("key", "list", "--json", *words).rows]

    assert names("--search", "IGHT") == ["nightly"]
    assert names("--search", "robot") == names("--search", key.hint) == ["ci"]
    assert names("--state", "paused") == ["laptop"]
    assert names("--state", "active", "--search", "search") == ["nightly"]
    assert names("--state", "project-inactive") == ["ci"]
    assert all(isinstance(names("--state", each.replace(" ", "-")), list) for each in KeyState)
    heads, row = vinery_("key", "list", "--search", "nightly").out.splitlines()
    assert "ORGANIZATION  PROJECT" in heads
    assert "acme" in row


@pytest.mark.parametrize("words", [("--project", "acme/search"), ()])
@pytest.mark.parametrize("role", [Role.VIEWER, None])
def test_a_key_is_not_made_for_whoever_may_have_none_there(
    vinery_: Vinery, search: Project, role: Role | None, words: tuple[str, ...]
) -> None:
    bob = User.objects.create_user("bob")
    if role is not None:
        changes.set_role(bob, search.organization, role)

    told = vinery_("key", "create", "--name", "x", "--user", "bob", *words)

    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("vinery: bob is not a member of acme / search.")
    assert not ApiKey.objects.exists()
    assert bob.memberships.count() == (role is not None)


def test_an_administrator_has_keys_where_they_have_no_role(
    vinery_: Vinery, search: Project
) -> None:
    User.objects.create_superuser("root")

    told = vinery_("key", "create", "--name", "x", "--project", "acme/search")

    assert find_key(told.out.strip()).project == search


def test_a_key_is_changed_in_what_is_named_alone(vinery_: Vinery, search: Project) -> None:
    words = ("--model", "small", "--network", "10.0.0.0/8", "--expires-in", "2h")
    key = find_key(vinery_("key", "create", "--name", "ci", "--user", "alice", *words).out.strip())

    def changed(*more: str) -> ApiKey:
        assert vinery_("key", "change", str(key.pk), *more).status == 0
        return ApiKey.objects.get(pk=key.pk)

    after = changed("--name", "nightly", "--endpoint", "completions", "--any-model")
    assert (after.name, after.allowed_endpoints, after.allowed_models) == (
        *("nightly", ["completions"], []),
    )
    assert (after.allowed_networks, after.expires_at) == (key.allowed_networks, key.expires_at)
    assert changed("--expires-in", "never").expires_at is None
    assert changed("--scope", "usage").scopes == ["usage"]
    num_entries = AuditEntry.objects.count()
    assert "stays as it is" in vinery_("key", "change", str(key.pk)).out
    assert AuditEntry.objects.count() == num_entries
    assert "10.0.0.0/8" in vinery_("key", "change", str(key.pk), "--network", "office").err


# -- People


def test_a_person_gets_a_password_and_a_role(vinery_: Vinery, search: Project) -> None:
    told = vinery_("user", "create", "carol", "--organization", "acme", "--role", "admin")

    carol = User.objects.get(username="carol")
    assert carol.check_password(told.out.strip())
    assert carol.memberships.get().role == Role.ADMIN
    rows = {row["name"]: row for row in vinery_("user", "list", "--json").rows}
    assert rows["carol"]["roles"] == ["admin of acme"]
    assert rows["carol"]["kind"] == "person"
    assert "carol" in vinery_("user", "list").out


def test_a_user_without_a_place_is_said_to_have_no_role(vinery_: Vinery, search: Project) -> None:
    told = vinery_("user", "create", "carol")

    carol = User.objects.get(username="carol")
    assert told.err == ("vinery: carol has no role anywhere yet. See: vinery user role --help\n")
    assert carol.check_password(told.out.strip())
    assert not carol.memberships.exists()
    assert "has no role" not in vinery_("user", "create", "dave", "--project", "search").err
    told = vinery_("user", "create", "erin", "--role", "admin")
    assert (told.status, told.out) == (1, "")
    assert "--organization or --project" in told.err
    assert not User.objects.filter(username="erin").exists()


def test_a_service_account_gets_no_password(vinery_: Vinery, search: Project) -> None:
    told = vinery_("user", "create", "robot", "--service", "--project", "search")

    robot = User.objects.get(username="robot")
    assert told.out == "robot is made.\n"
    assert robot.is_service
    assert not robot.has_usable_password()
    assert robot.memberships.get().project == search
    assert "does not sign in" in vinery_("user", "password", "robot").err


def test_a_user_is_stopped_with_their_keys_and_let_in_again(
    vinery_: Vinery, search: Project
) -> None:
    key = find_key(vinery_("key", "create", "--name", "x", "--user", "alice").out.strip())

    assert vinery_("user", "deactivate", "alice").status == 0
    key = ApiKey.objects.get(pk=key.pk)
    assert key.state_at(timezone.now()) is KeyState.OWNER_INACTIVE
    assert vinery_("user", "activate", "alice").status == 0
    new = vinery_("user", "password", "alice").out.strip()
    assert User.objects.get(username="alice").check_password(new)


def test_a_user_is_changed_in_what_is_named_alone(vinery_: Vinery, search: Project) -> None:
    assert vinery_("user", "change", "alice", "--email", "alice@example.com").status == 0
    assert vinery_("user", "change", "alice", "--first-name", "Alice").status == 0

    alice = User.objects.get(username="alice")
    assert (alice.email, alice.first_name) == ("alice@example.com", "Alice")
    assert "valid email" in vinery_("user", "change", "alice", "--email", "alice@").err
    assert vinery_("user", "change", "alice", "--email", "").status == 0
    alice.refresh_from_db()
    assert alice.email == ""


def test_roles_are_given_and_taken(vinery_: Vinery, search: Project) -> None:
    assert vinery_("user", "role", "alice", "owner", "--organization", "acme").status == 0
    assert vinery_("user", "role", "alice", "viewer", "--project", "search").status == 0
    assert {(each.project, each.role) for each in Membership.objects.all()} == {
        (None, "owner"),
        (search, "viewer"),
    }
    told = vinery_("user", "role", "alice", "none", "--organization", "acme")
    assert "alice is the last owner of acme" in told.err
    assert vinery_("user", "role", "alice", "none", "--project", "search").status == 0
    assert "has no role" in vinery_("user", "role", "alice", "none", "--project", "search").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("user", "remove", "root"), "root is the last administrator: name another."),
        (("user", "role", "olga", "none", "--organization", "acme"), "olga is the last owner"),
        (("user", "create", "x" * 151), "name: Ensure this value has at most 150"),
        (("user", "change", "root", "--last-name", "x" * 151), "--last-name: Ensure this"),
        (("project", "change", "search", "--redact", ""), "--redact: "),
        (("project", "change", "search", "--capture-hours", "721"), "--capture-hours: Ensure"),
        (("key", "create", "--name", "x", "--model", ""), "--model: Give a list"),
        (("key", "create", "--name", "x", "--network", "office"), "'office' does not appear"),
        (
            ("key", "create", "--name", "x", "--rotate-every", "10w", "--rotation-grace", "366d"),
            "--rotation-grace: Ensure this value is less",
        ),
        (
            ("limit", "set", "--platform", "--metric", "tokens", "--amount", "0"),
            "--amount: Ensure this value is greater",
        ),
    ],
)
def test_what_is_refused_is_told_in_words_of_the_command(
    vinery_: Vinery, search: Project, words: tuple[str, ...], said: str
) -> None:
    User.objects.create_superuser("root")
    changes.set_role(User.objects.create_user("olga"), search.organization, Role.OWNER)

    told = vinery_(*words)

    assert (told.status, told.out) == (1, "")
    assert told.err.startswith(f"vinery: {said}")


def test_another_administrator_is_named_before_the_last_one_goes(
    vinery_: Vinery, search: Project
) -> None:
    root = User.objects.create_superuser("root")
    told = vinery_("user", "change", "root", "--no-administrator")
    assert told.err == "vinery: root is the last administrator: name another.\n"

    made = vinery_("user", "create", "carol", "--administrator")
    assert User.objects.get(username="carol").check_password(made.out.strip())
    assert made.err == ""
    assert vinery_("user", "change", "alice", "--administrator").status == 0
    assert vinery_("user", "change", "root", "--no-administrator").status == 0

    root.refresh_from_db()
    assert (root.is_superuser, root.is_staff) == (False, False)
    for name in ("alice", "carol"):
        user = User.objects.get(username=name)
        assert (user.is_superuser, user.is_staff) == (True, True)
    (entry,) = AuditEntry.objects.filter(action="user.update", target="alice")
    assert entry.after == {"is_superuser": True, "is_staff": True}
    assert AuditEntry.objects.filter(action="user.update", target="carol").exists()
    assert vinery_("user", "remove", "root").status == 0


def test_no_service_account_is_an_administrator(vinery_: Vinery, search: Project) -> None:
    vinery_("user", "create", "robot", "--service", "--project", "search")

    told = vinery_("user", "change", "robot", "--administrator")

    assert (told.status, told.out) == (1, "")
    assert "Administrators are people" in told.err
    assert not User.objects.get(username="robot").is_superuser


def test_the_last_administrator_is_not_locked_out(vinery_: Vinery) -> None:
    User.objects.create_superuser("root")
    told = vinery_("user", "deactivate", "root")
    assert (told.status, told.out) == (1, "")
    assert "root is the last administrator" in told.err


def test_a_user_is_removed_with_their_keys(vinery_: Vinery, search: Project) -> None:
    vinery_("key", "create", "--name", "x", "--user", "alice")

    assert vinery_("user", "remove", "alice").out == "Removed: alice.\n"

    assert not User.objects.exists()
    assert not ApiKey.objects.exists()


def test_the_last_administrator_and_the_last_owner_are_not_removed(
    vinery_: Vinery, search: Project
) -> None:
    User.objects.create_superuser("root")
    vinery_("user", "role", "alice", "owner", "--organization", "acme")

    for name, why in (("root", "the last administrator"), ("alice", "the last owner of acme")):
        told = vinery_("user", "remove", name)
        assert (told.status, told.out) == (1, "")
        assert f"{name} is {why}" in told.err
    assert User.objects.count() == 2


@pytest.mark.parametrize("had_one", [True, False])
def test_a_lost_phone_is_no_locked_door(
    vinery_: Vinery, search: Project, monkeypatch: pytest.MonkeyPatch, had_one: bool
) -> None:
    forgotten: list[User] = []

    def forget_factors(user: User) -> int:
        forgotten.append(user)
        return int(had_one)

    monkeypatch.setattr("accounts.signin.recovery.forget_factors", forget_factors)

    told = vinery_("user", "second-factor-off", "alice")

    assert [user.username for user in forgotten] == ["alice"]
    assert told.status == (0 if had_one else 1)
    told_of = AuditEntry.objects.filter(action="user.second_factor_off")
    assert told_of.exists() is had_one


@pytest.mark.parametrize(
    "action", ["deactivate", "activate", "remove", "password", "second-factor-off"]
)
def test_nobody_can_be_found_who_is_not_there(vinery_: Vinery, action: str) -> None:
    assert (
        vinery_("user", action, "bob").err
        == "vinery: There is no user bob. See: vinery user list\n"
    )


# -- Places


def test_places_are_made_renamed_and_switched(vinery_: Vinery) -> None:
    assert vinery_("organization", "create", "acme").status == 0
    assert vinery_("project", "create", "search", "--organization", "acme").status == 0
    assert (
        "a project of that name"
        in vinery_(*("project", "create", "search", "--organization", "acme")).err
    )
    vinery_("project", "rename", "acme/search", "find")
    vinery_("project", "deactivate", "find")
    vinery_("organization", "rename", "acme", "Acme")
    vinery_("organization", "deactivate", "Acme")

    (project,) = vinery_("project", "list", "--json", "--organization", "Acme").rows
    (organization,) = vinery_("organization", "list", "--json").rows
    assert (project["name"], project["active"], project["keys"]) == ("find", False, 0)
    assert (organization["name"], organization["active"]) == ("Acme", False)
    vinery_("organization", "activate", "Acme")
    assert Organization.objects.get().is_active
    assert "Acme" in vinery_("organization", "list").out


def test_places_are_removed_from_the_inside_out(vinery_: Vinery, search: Project) -> None:
    key = find_key(vinery_("key", "create", "--name", "x", "--user", "alice").out.strip())
    vinery_("key", "revoke", str(key.pk))

    told = vinery_("project", "remove", "acme/search")
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("vinery: acme / search has keys")
    told = vinery_("organization", "remove", "acme")
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("vinery: acme has projects")

    key.delete()
    assert vinery_("project", "remove", "acme/search").out == "Removed: acme / search.\n"
    assert vinery_("organization", "remove", "acme").out == "Removed: acme.\n"
    assert not Organization.objects.exists()


def test_a_name_that_another_project_has_is_refused_in_a_line(
    vinery_: Vinery, search: Project
) -> None:
    vinery_("project", "create", "other", "--organization", "acme")

    told = vinery_("project", "rename", "other", "search")

    assert told.status == 1
    assert "This organisation has a project of that name." in told.err


def test_a_project_is_named_with_its_organisation_where_there_are_two(
    vinery_: Vinery, search: Project
) -> None:
    vinery_("organization", "create", "other")
    vinery_("project", "create", "search", "--organization", "other")

    told = vinery_("project", "deactivate", "search")
    assert told.err == "vinery: Several projects are named search. Write ORGANISATION/search.\n"
    assert vinery_("project", "deactivate", "other/search").status == 0
    search.refresh_from_db()
    assert search.is_active


# -- Limits and weights


def test_a_limit_is_set_and_set_anew(vinery_: Vinery, search: Project) -> None:
    key = find_key(vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip())
    kind = ("--metric", "tokens", "--window", "day")
    for scope in (
        ("--platform",),
        ("--organization", "acme"),
        ("--project", "search"),
        ("--user", "alice"),
        ("--key", str(key.pk)),
        ("--model", "tiny-chat"),
    ):
        assert vinery_("limit", "set", *scope, *kind, "--amount", "9").status == 0, scope
    zone = ("--time-zone", "Europe/Berlin", "--shadow")
    assert vinery_("limit", "set", "--user", "alice", *kind, "--amount", "7", *zone).status == 0

    rows = {row["scope"]: row for row in vinery_("limit", "list", "--json").rows}
    assert len(rows) == Limit.objects.count() == 6
    assert {scope: row["whose"] for scope, row in rows.items()} == {
        "platform": "",
        "organization": "acme",
        "project": "acme / search",
        "user": "alice",
        "key": str(key),
        "model": "tiny-chat",
    }
    assert (rows["user"]["amount"], rows["user"]["shadow"]) == (7, True)
    assert vinery_("limit", "remove", str(rows["user"]["id"])).status == 0
    assert "There is no limit" in vinery_("limit", "remove", str(rows["user"]["id"])).err
    assert "Europe/Berlin" not in vinery_("limit", "list").out


def test_a_limit_set_anew_keeps_what_is_not_named(vinery_: Vinery) -> None:
    kind = ("limit", "set", "--platform", "--metric", "tokens", "--window", "day")
    zone = ("--time-zone", "Europe/Berlin", "--shadow", "--alert-at", "90")

    def kept(*words: str) -> tuple[Any, ...]:
        assert vinery_(*kind, *words).status == 0
        limit = Limit.objects.get()
        return limit.amount, limit.time_zone, limit.is_shadow, limit.alert_at

    assert kept("--amount", "9", *zone) == (9, "Europe/Berlin", True, [90])
    assert kept("--amount", "8") == (8, "Europe/Berlin", True, [90])
    assert kept("--amount", "8", "--no-shadow") == (8, "Europe/Berlin", False, [90])
    assert kept("--amount", "8", "--alert-at", "platform") == (8, "Europe/Berlin", False, None)
    assert kept("--amount", "8", "--time-zone", "UTC") == (8, "UTC", False, None)


def test_a_week_begins_on_the_day_that_is_named(vinery_: Vinery) -> None:
    kind = ("limit", "set", "--platform", "--metric", "tokens", "--window", "week")

    def begins(*words: str) -> str:
        assert vinery_(*kind, "--amount", "9", *words).status == 0
        (row,) = vinery_("limit", "list", "--json").rows
        assert row["window"] == "week"
        return str(row["week_start"])

    assert begins() == "monday"
    assert begins("--week-start", "sunday") == "sunday"
    assert begins() == "sunday"
    assert "sunday" in vinery_("limit", "list").out

    (row,) = vinery_("limit", "quotas", "--json").rows
    since = datetime.fromisoformat(row["since"])
    assert (since.strftime("%A"), since.hour) == ("Sunday", 0)
    assert datetime.fromisoformat(row["resets"]) - since == timedelta(days=7)


def test_quotas_are_listed_with_what_is_left(vinery_: Vinery, search: Project) -> None:
    words = ("limit", "set", "--project", "search", "--amount", "1000", "--metric")
    told = vinery_(*words, "tokens", "--window", "day").out
    assert told.endswith(": 1000 tokens per day, project acme / search.\n")
    vinery_(*words, "tokens", "--window", "minute")
    usage = settlement(admission=admission(started_at=datetime.now(UTC), project_id=search.pk))
    store_settlements([usage])

    (row,) = vinery_("limit", "quotas", "--json").rows
    assert (row["whose"], row["used"], row["left"]) == ("acme / search", 41, 959)
    assert "959" in vinery_("limit", "quotas").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "tokens", "--amount", "9"), "Choose a minute, a day, a week or a month."),
        (("--metric", "concurrency", "--window", "day", "--amount", "9"), "at any time"),
        (
            ("--metric", "tokens", "--window", "day", "--amount", "1", "--week-start", "sunday"),
            "Only a limit of a week has a first day",
        ),
        (("--metric", "tokens", "--window", "day", "--amount", "0"), "amount: Ensure this value"),
        (
            ("--metric", "tokens", "--window", "day", "--amount", "1", "--time-zone", "Mars"),
            "There is no time zone Mars",
        ),
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_a_line(
    vinery_: Vinery, words: tuple[str, ...], message: str
) -> None:
    told = vinery_("limit", "set", "--platform", *words)
    assert (told.status, told.out) == (1, "")
    assert message in told.err
    assert not Limit.objects.exists()


def test_weights_are_set_listed_and_forgotten(vinery_: Vinery) -> None:
    vinery_("weight", "set", "tiny-chat", "--cached", "0.1")
    vinery_("weight", "set", "tiny-chat", "--output", "4")

    (row,) = vinery_("weight", "list", "--json").rows
    assert row == {
        "model": "tiny-chat",
        "uncached": 1.0,
        "cached": 0.1,
        "output": 4.0,
        "image": 1.0,
    }
    assert (
        "image: Ensure this value is greater" in vinery_("weight", "set", "m", "--image", "-1").err
    )
    for weight in ("1001", "1e308", "inf", "nan"):
        assert (
            "Give a weight from 0 to 1000" in vinery_("weight", "set", "m", "--image", weight).err
        )
    assert vinery_("weight", "remove", "tiny-chat").status == 0
    assert not ModelWeight.objects.exists()
    assert vinery_("weight", "remove", "tiny-chat").status == 1


# -- The books


def test_usage_and_refusals_are_chosen_by_names_and_by_ids_of_what_is_gone(
    vinery_: Vinery, search: Project
) -> None:
    alice = User.objects.get(username="alice")
    key = find_key(vinery_("key", "create", "--name", "ci", "--user", "alice").out.strip())
    acme = search.organization
    owners = {
        "user_id": alice.pk,
        "key_id": key.pk,
        "project_id": search.pk,
        "organization_id": acme.pk,
    }
    now = timezone.now()
    store_settlements(
        [
            settlement("hers", admission=admission("hers", **owners, started_at=now)),
            settlement("gone", admission=admission("gone", user_id=4711, started_at=now)),
        ]
    )
    limit = {"metric": "tokens", "window": "day", "amount": 1, "level": 1, "needed": 1}
    for request_id, more in (("hers", owners), ("gone", {"user_id": 4711})):
        RefusedRequest.objects.create(
            request_id=request_id, created_at=now, limit_id=1, scope="platform", **limit, **more
        )

    for words in (
        ("--user", "alice"),
        ("--key", key.hint),
        ("--project", "acme/search"),
        ("--organization", "acme"),
    ):
        (exported,) = vinery_("usage", "export", "--format", "jsonl", *words).out.splitlines()
        assert json.loads(exported)["request_id"] == "hers"
        assert [
            row["request_id"] for row in vinery_("refusals", "list", "--json", *words).rows
        ] == ["hers"]
    (exported,) = vinery_("usage", "export", "--format", "jsonl", "--user", "4711").out.splitlines()
    assert json.loads(exported)["request_id"] == "gone"
    for command in (("usage", "show"), ("usage", "export"), ("refusals", "list")):
        told = vinery_(*command, "--user", "nobody")
        assert (told.status, told.err) == (
            1,
            "vinery: There is no user nobody. See: vinery user list\n",
        )


def test_an_outcome_that_there_is_not_is_refused_in_a_line(vinery_: Vinery) -> None:
    told = vinery_("usage", "show", "--outcome", "fine")

    assert told.status == 1
    assert "There is no outcome fine. There are: ok, " in told.err


def test_percentages_that_are_none_are_refused_in_words_of_the_command(
    vinery_: Vinery, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        vinery_(
            *("limit", "set", "--platform", "--metric", "tokens", "--window", "day"),
            *("--amount", "9", "--alert-at", "half"),
        )

    assert "'half' is neither percentages like 50,80,100 nor off nor platform" in (
        capsys.readouterr().err
    )


# -- The log


def test_all_of_it_is_in_the_log_with_the_name_of_whoever_ran_it(
    vinery_: Vinery, search: Project
) -> None:
    num_before = AuditEntry.objects.count()
    vinery_("organization", "create", "other")
    vinery_(
        "limit", "set", "--platform", "--metric", "requests", "--window", "day", "--amount", "1"
    )

    newest = AuditEntry.objects.order_by("number")[num_before:]
    assert [entry.action for entry in newest] == ["organization.create", "limit.create"]
    assert all(entry.actor.startswith("command line (") for entry in newest)
    (row,) = vinery_("audit", "list", "--search", "other", "--json").rows
    assert (row["action"], row["target"]) == ("organization.create", "other")
    assert vinery_("audit", "list", "--num", "1").out.count("\n") == 2


def test_the_log_is_filtered_as_in_the_api(vinery_: Vinery, search: Project) -> None:
    alice = User.objects.get()
    with acting_as(Actor(alice.pk, "key ci of alice")):
        other = changes.add(Organization(name="other"))
    with acting_as(Actor(None, "gone")):
        changes.change(other, name="another")

    def numbers(*words: str) -> list[int]:
        told = vinery_("audit", "list", "--json", *words)
        assert told.status == 0, told.err
        return [row["number"] for row in told.rows]

    newest = AuditEntry.objects.latest("number")
    made, changed = newest.number - 1, newest.number
    assert numbers("--actor", "alice") == numbers("--actor", str(alice.pk)) == [made]
    assert numbers("--actor", "gone") == [changed]
    assert numbers("--actor", "gone", "--to", "1999-01-01") == []
    User.objects.create_user("idle")
    assert numbers("--actor", "idle") == []
    assert numbers("--action", "organization.update") == [changed]
    assert numbers("--target", f"organization:{other.pk}") == [changed, made]
    assert numbers("--target", "organization", "--actor", "alice") == [made]
    assert numbers("--organization", "another") == [changed, made]
    since, until = newest.created_at.isoformat(), made_at(made).isoformat()
    assert changed in numbers("--from", since)
    assert made not in numbers("--to", until)
    assert numbers("--to", "1999-01-01") == []
    assert made in numbers("--last", "1d")


@pytest.mark.parametrize(
    "words",
    [
        *(("--actor", "nobody"), ("--actor", "4711"), ("--action", "key.revok")),
        *(("--target", "kee"), ("--target", "organization:abc")),
    ],
)
def test_what_the_log_never_heard_of_is_told_from_what_was_not_found(
    vinery_: Vinery, search: Project, words: tuple[str, ...]
) -> None:
    told = vinery_("audit", "list", *words)

    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("vinery: The log has nothing ")
    assert words[1] in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(
            (f"{room} --num {num}", "is not a number from 1")
            for num in (0, -1, "x")
            for room in (
                "audit list",
                "refusals list",
                "capture list",
                "alerts list",
                "alerts reminders",
            )
        ),
        ("usage show --by key --top -1", "is not a number from 1"),
        ("refusals list --metric foo", "invalid choice"),
        ("refusals list --scope foo:1", "is no scope"),
        *(
            (f"{room} --from 2026-01-01 --last 5m", "not allowed with argument --from")
            for room in ("usage show", "audit list", "refusals export")
        ),
        ("usage show --last 5y", "is not a period like 30m, 12h"),
    ],
)
def test_what_can_find_nothing_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        vinery.cli.main(words.split())

    assert error.value.code == 2
    assert said in capsys.readouterr().err


def test_periods_are_as_short_as_minutes(vinery_: Vinery, search: Project) -> None:
    (row,) = vinery_("audit", "list", "--last", "1440m", "--num", "1", "--json").rows

    assert row["number"] == AuditEntry.objects.latest("number").number
    key = find_key(
        vinery_("key", "create", "--name", "x", "--user", "alice", "--expires-in", "5m").out.strip()
    )
    assert key.expires_at is not None
    assert key.expires_at - key.created_at < timedelta(hours=1)


def made_at(number: int) -> datetime:
    return AuditEntry.objects.get(number=number).created_at


def test_the_log_is_verified_with_a_hash_that_was_kept(vinery_: Vinery, search: Project) -> None:
    told = vinery_("audit", "verify")
    kept = verify().newest_hash
    assert told.status == 0
    assert f"Newest hash: {kept}" in told.out
    assert vinery_("audit", "verify", "--newest", kept).status == 0

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_auditentry WHERE hash = %s", [kept])
    assert vinery_("audit", "verify").status == 0
    told = vinery_("audit", "verify", "--newest", kept)
    assert told.status == 1
    assert told.err.startswith("vinery: The audit log is broken (cut). The chain ends with entry")

    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounts_auditentry SET actor = 'mallory' WHERE number = 2")
    told = vinery_("audit", "verify")
    assert told.status == 1
    assert "(changed). Entry 2" in told.err
