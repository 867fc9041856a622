"""Users, their passwords and their roles by command."""

from __future__ import annotations

import pytest
from django.utils import timezone

from tests.accounts.commands.conftest import Vinery
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import (
    ApiKey,
    AuditEntry,
    KeyState,
    Membership,
    Project,
    Role,
    User,
)
from vinery_accounts.services import changes


def test_a_person_gets_a_password_and_a_role(vinery_: Vinery, search: Project) -> None:
    result = vinery_("user", "create", "carol", "--organization", "acme", "--role", "admin")

    carol = User.objects.get(username="carol")
    assert carol.check_password(result.out.strip())
    assert result.err == "vinery: The password of carol. It is not shown again:\n"
    assert carol.memberships.get().role == Role.ADMIN
    rows = {row["name"]: row for row in vinery_("user", "list", "--json").rows}
    assert rows["carol"]["roles"] == ["admin of acme"]
    assert rows["carol"]["kind"] == "person"
    assert "carol" in vinery_("user", "list").out


def test_the_command_warns_that_a_user_without_a_scope_has_no_role(
    vinery_: Vinery, search: Project
) -> None:
    result = vinery_("user", "create", "carol")

    carol = User.objects.get(username="carol")
    assert result.err.startswith(
        "vinery: carol has no role anywhere yet. See: vinery user role --help\n"
    )
    assert carol.check_password(result.out.strip())
    assert not carol.memberships.exists()
    assert "has no role" not in vinery_("user", "create", "dave", "--project", "search").err
    result = vinery_("user", "create", "erin", "--role", "admin")
    assert (result.status, result.out) == (1, "")
    assert "--organization or --project" in result.err
    assert not User.objects.filter(username="erin").exists()


def test_a_service_account_gets_no_password(vinery_: Vinery, search: Project) -> None:
    result = vinery_("user", "create", "robot", "--service", "--project", "search")

    robot = User.objects.get(username="robot")
    assert result.out == "robot is created.\n"
    assert robot.is_service
    assert not robot.has_usable_password()
    assert robot.memberships.get().project == search
    assert "does not sign in" in vinery_("user", "password", "robot").err


def test_a_user_is_deactivated_with_their_keys_and_activated_again(
    vinery_: Vinery, search: Project
) -> None:
    key = find_key(vinery_("key", "create", "--name", "x", "--user", "alice").out.strip())

    assert vinery_("user", "deactivate", "alice").status == 0
    key = ApiKey.objects.get(pk=key.pk)
    assert key.state_at(timezone.now()) is KeyState.OWNER_INACTIVE
    assert vinery_("user", "activate", "alice").status == 0
    new = vinery_("user", "password", "alice").out.strip()
    assert User.objects.get(username="alice").check_password(new)


def test_only_the_named_fields_of_a_user_are_changed(vinery_: Vinery, search: Project) -> None:
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
    result = vinery_("user", "role", "alice", "none", "--organization", "acme")
    assert "alice is the last owner of acme" in result.err
    assert vinery_("user", "role", "alice", "none", "--project", "search").status == 0
    assert "has no role" in vinery_("user", "role", "alice", "none", "--project", "search").err


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_a_refusal_is_reported_with_the_names_of_the_command(
    vinery_: Vinery, search: Project, words: tuple[str, ...], message: str
) -> None:
    User.objects.create_superuser("root")
    changes.set_role(User.objects.create_user("olga"), search.organization, Role.OWNER)

    result = vinery_(*words)

    assert (result.status, result.out) == (1, "")
    assert result.err.startswith(f"vinery: {message}")


def test_the_last_administrator_leaves_only_after_another_is_appointed(
    vinery_: Vinery, search: Project
) -> None:
    root = User.objects.create_superuser("root")
    result = vinery_("user", "change", "root", "--no-administrator")
    assert result.err == "vinery: root is the last administrator: name another.\n"

    created = vinery_("user", "create", "carol", "--administrator")
    assert User.objects.get(username="carol").check_password(created.out.strip())
    assert "has no role" not in created.err
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

    result = vinery_("user", "change", "robot", "--administrator")

    assert (result.status, result.out) == (1, "")
    assert "Administrators are people" in result.err
    assert not User.objects.get(username="robot").is_superuser


def test_the_last_administrator_cannot_be_deactivated(vinery_: Vinery) -> None:
    User.objects.create_superuser("root")
    result = vinery_("user", "deactivate", "root")
    assert (result.status, result.out) == (1, "")
    assert "root is the last administrator" in result.err


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
        result = vinery_("user", "remove", name)
        assert (result.status, result.out) == (1, "")
        assert f"{name} is {why}" in result.err
    assert User.objects.count() == 2


@pytest.mark.parametrize("had_one", [True, False])
def test_a_lost_second_factor_is_switched_off_by_command(
    vinery_: Vinery, search: Project, monkeypatch: pytest.MonkeyPatch, had_one: bool
) -> None:
    forgotten: list[User] = []

    def forget_factors(user: User) -> int:
        forgotten.append(user)
        return int(had_one)

    monkeypatch.setattr("vinery_accounts.signin.recovery.forget_factors", forget_factors)

    result = vinery_("user", "second-factor-off", "alice")

    assert [user.username for user in forgotten] == ["alice"]
    assert result.status == (0 if had_one else 1)
    entries = AuditEntry.objects.filter(action="user.second_factor_off")
    assert entries.exists() is had_one


@pytest.mark.parametrize(
    "action", ["deactivate", "activate", "remove", "password", "second-factor-off"]
)
def test_an_unknown_user_is_reported(vinery_: Vinery, action: str) -> None:
    assert (
        vinery_("user", action, "bob").err
        == "vinery: There is no user bob. See: vinery user list\n"
    )
