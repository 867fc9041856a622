"""Organisations, projects, users, passwords and roles by command."""

import pytest

from tests.accounts.commands.conftest import Vinery
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import Membership, Organization, Project, Role, User


def named(name: str) -> User:
    return User.objects.get(username=name)


def test_organisations_and_projects_are_created_renamed_and_switched(vinery_: Vinery) -> None:
    assert vinery_("organization", "create", "acme").status == 0
    assert vinery_("project", "create", "search", "--organization", "acme").status == 0
    vinery_("project", "create", "other", "--organization", "acme")
    for words in (("create", "search", "--organization", "acme"), ("rename", "other", "search")):
        assert "has a project of that name." in vinery_("project", *words).refusal
    vinery_("project", "rename", "acme/search", "find")
    vinery_("project", "deactivate", "find")
    vinery_("project", "remove", "other")
    vinery_("organization", "rename", "acme", "Acme")
    vinery_("organization", "deactivate", "Acme")

    (project,) = vinery_("project", "list", "--json", "--organization", "Acme").rows
    (organization,) = vinery_("organization", "list", "--json").rows
    assert (project["name"], project["active"], project["keys"]) == ("find", False, 0)
    assert (organization["name"], organization["active"]) == ("Acme", False)
    vinery_("organization", "activate", "Acme")
    assert Organization.objects.get().is_active
    assert "Acme" in vinery_("organization", "list").out


def test_an_ambiguous_project_needs_its_organisation(vinery_: Vinery, search: Project) -> None:
    vinery_("organization", "create", "other")
    vinery_("project", "create", "search", "--organization", "other")

    result = vinery_("project", "deactivate", "search")
    assert result.refusal == "Several projects are named search. Write ORGANISATION/search.\n"
    assert vinery_("project", "deactivate", "other/search").status == 0
    search.refresh_from_db()
    assert search.is_active


def test_people_get_a_password_and_service_accounts_none(vinery_: Vinery, search: Project) -> None:
    result = vinery_("user", "create", "carol", "--organization", "acme", "--role", "admin")

    carol = named("carol")
    assert carol.check_password(result.out.strip())
    assert result.err == "vinery: The password of carol. It is not shown again:\n"
    assert carol.memberships.get().role == Role.ADMIN
    rows = {row["name"]: row for row in vinery_("user", "list", "--json").rows}
    assert (rows["carol"]["roles"], rows["carol"]["kind"]) == (["admin of acme"], "person")
    assert "carol" in vinery_("user", "list").out

    result = vinery_("user", "create", "frank")
    assert result.err.startswith(
        "vinery: frank has no role anywhere yet. See: vinery user role --help\n"
    )
    assert named("frank").check_password(result.out.strip())
    assert not named("frank").memberships.exists()
    assert "has no role" not in vinery_("user", "create", "dave", "--project", "search").err
    result = vinery_("user", "create", "erin", "--role", "admin")
    assert "--organization or --project" in result.refusal
    assert not User.objects.filter(username="erin").exists()

    result = vinery_("user", "create", "robot", "--service", "--project", "search")

    robot = named("robot")
    assert result.out == "robot is created.\n"
    assert robot.is_service
    assert not robot.has_usable_password()
    assert robot.memberships.get().project == search
    assert "does not sign in" in vinery_("user", "password", "robot").err
    refusal = vinery_("user", "change", "robot", "--administrator").refusal
    assert "Administrators are people" in refusal
    assert not named("robot").is_superuser


def test_only_the_named_fields_and_roles_are_changed(vinery_: Vinery, search: Project) -> None:
    assert vinery_("user", "change", "alice", "--email", "alice@example.com").status == 0
    assert vinery_("user", "change", "alice", "--first-name", "Alice").status == 0

    assert (named("alice").email, named("alice").first_name) == ("alice@example.com", "Alice")
    assert "valid email" in vinery_("user", "change", "alice", "--email", "alice@").err
    assert vinery_("user", "change", "alice", "--email", "").status == 0
    assert named("alice").email == ""

    assert vinery_("user", "role", "alice", "owner", "--organization", "acme").status == 0
    assert vinery_("user", "role", "alice", "viewer", "--project", "search").status == 0
    assert {(each.project, each.role) for each in Membership.objects.all()} == {
        *((None, "owner"), (search, "viewer"))
    }
    assert vinery_("user", "role", "alice", "none", "--project", "search").status == 0
    assert "has no role" in vinery_("user", "role", "alice", "none", "--project", "search").err


@table(
    "words, message",
    [
        ("user remove root", "root is the last administrator: name another."),
        ("user change root --no-administrator", "root is the last administrator: name another.\n"),
        ("user role olga none --organization acme", "olga is the last owner"),
        (f"user create {'x' * 151}", "name: Ensure this value has at most 150"),
        ("project create a/b --organization acme", "name: "),
        ("project change search --redact=", "--redact: "),
        ("key create --name x --model=", "--model: Give a list"),
        (
            "key create --name x --rotate-every 10w --rotation-grace 366d",
            "--rotation-grace: Ensure this value is less",
        ),
        ("limit set --platform --metric tokens --amount 0", "--amount: Ensure this value is great"),
        *(
            (f"user {action} bob", "There is no user bob. See: vinery user list\n")
            for action in ("deactivate", "activate", "remove", "password", "second-factor-off")
        ),
    ],
)
def test_a_refusal_is_reported_with_the_names_of_the_command(
    vinery_: Vinery, olga: User, root: User, words: str, message: str
) -> None:
    assert vinery_(*words.split()).refusal.startswith(message)
    assert User.objects.count() == 3


@pytest.fixture
def olga(search: Project) -> User:
    """The last owner of acme."""
    olga = User.objects.create_user("olga")
    changes.set_role(olga, search.organization, Role.OWNER)
    return olga
