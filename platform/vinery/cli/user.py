"""`vinery user`: people and service accounts, their roles, passwords and second factors."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from accounts.models import Membership, Organization, Project, Role, User
from accounts.resources.base import EVERYTHING
from accounts.resources.users import MEMBERSHIPS, USERS, Users
from accounts.services import audit, changes
from accounts.signin.recovery import reset_second_factor, set_password
from vinery.cli import resource
from vinery.cli.find import organization_named, project_named, user_named
from vinery.cli.organization import activated
from vinery.cli.resource import Option
from vinery.cli.shape import Commands, Failure, print_line

_ROLES: Final = tuple(reversed(Role.values))
_ADMINISTRATOR: Final[dict[str, Any]] = {"is_superuser": True, "is_staff": True}
_NAME: Final = ("name", "NAME", "the user's name")
_FIELDS: Final = {
    "email": Option(metavar="TEXT", help="their e-mail address; empty for none"),
    "first_name": Option(metavar="TEXT", help="their first name"),
    "last_name": Option(metavar="TEXT", help="their last name"),
}


class _UserTable(Users):
    """Users with the columns of `vinery user list`."""

    columns: ClassVar[dict[str, Any]] = {
        "id": "id",
        "name": "username",
        "kind": lambda user: (
            "administrator" if user.is_superuser else "service" if user.is_service else "person"
        ),
        "active": "is_active",
        "roles": lambda user: [],
        "last_login": "last_login",
    }


def add_to(commands: Commands) -> None:
    """Add `vinery user` and its commands."""
    actions = resource.add_group(
        commands, "user", "create, list, deactivate and remove users, give them roles"
    )
    _add_create(actions)
    resource.add_list(actions, _UserTable(), "List users by name.", extra=_roles)
    resource.add_actions(
        actions,
        USERS,
        user_named,
        ("deactivate", "activate"),
        help="the user's name",
        done=lambda row, action: activated(row, action).replace("its", "their"),
    )
    resource.add_remove(
        actions,
        USERS,
        user_named,
        "Remove a user for good, with their keys, roles and limits. Their usage records stay.",
        argument=_NAME,
    )
    for name, run, text in (
        ("password", password, "Give a user a new random password, and print it once."),
        ("second-factor-off", second_factor_off, "Remove the second factor of a user."),
    ):
        parser = resource.add_command(actions, name, run, text)
        parser.add_argument(_NAME[0], metavar=_NAME[1], help=_NAME[2])
    _add_change(actions)
    role = resource.add_command(
        actions,
        "role",
        set_role,
        "Give a user a role in an organisation or in one project, or take it.",
    )
    role.add_argument(_NAME[0], metavar=_NAME[1], help=_NAME[2])
    role.add_argument("role", choices=(*_ROLES, "none"), help="none takes the role")
    _add_scope(role, required=True)


def _add_change(actions: Commands) -> None:
    change = resource.add_command(
        actions,
        "change",
        change_user,
        "Change a user's e-mail address or names, or make them an administrator. Options that are "
        "not given keep their values.",
    )
    change.add_argument(_NAME[0], metavar=_NAME[1], help=_NAME[2])
    resource.add_fields(change, USERS, _FIELDS, _FIELDS)
    change.add_argument(
        "--administrator",
        action=argparse.BooleanOptionalAction,
        help="whether they may do everything on this platform, in the admin too",
    )


def _add_create(actions: Commands) -> None:
    make = resource.add_command(
        actions,
        "create",
        create,
        "Create a user.",
        description="Create a user. A person gets a random password, which is printed once. "
        "Without --organization or --project the user has no role, and can have no keys until "
        "`vinery user role` gives them one.",
    )
    make.add_argument("name", metavar="NAME", help="what they sign in with")
    make.add_argument("--email", default="", help="their e-mail address")
    kind = make.add_mutually_exclusive_group()
    kind.add_argument(
        "--service",
        action="store_true",
        help="a program's account, which owns keys and cannot sign in",
    )
    kind.add_argument(
        "--administrator",
        action="store_true",
        help="a user who may do everything on this platform, in the admin too",
    )
    make.add_argument(
        "--no-password",
        action="store_true",
        help="for a user who signs in elsewhere; nothing is printed",
    )
    make.add_argument("--role", choices=_ROLES, help="the role (default: member)")
    _add_scope(make, required=False)


def _add_scope(parser: argparse.ArgumentParser, *, required: bool) -> None:
    scope = parser.add_mutually_exclusive_group(required=required)
    scope.add_argument("--organization", metavar="NAME", help="a role in the whole organisation")
    scope.add_argument(
        "--project", metavar="NAME", help="a role in this project: PROJECT or ORGANISATION/PROJECT"
    )


def create(arguments: argparse.Namespace) -> int:
    """Create a user, and print their password. Raises `Failure`."""
    has_password = not (arguments.service or arguments.no_password)
    new_password = secrets.token_urlsafe(15) if has_password else None
    scope = _scope(arguments)
    if arguments.role and scope is None:
        raise Failure("Name where they have this role, with --organization or --project.")
    values = {
        "username": arguments.name,
        "password": new_password,
        "email": arguments.email,
        "is_service": arguments.service,
        "organization": scope,
        "role": arguments.role or Role.MEMBER,
    }
    with resource.failures(), audit.writing():
        user = resource.create(USERS, values)
        if arguments.administrator:
            changes.change(user, **_ADMINISTRATOR)
    print(new_password or f"{arguments.name} is created.")
    if scope is None and not arguments.administrator:
        # To standard error: scripts read the password from standard output.
        hint = f"{arguments.name} has no role anywhere yet. See: vinery user role --help"
        print(f"vinery: {hint}", file=sys.stderr)
    return 0


def change_user(arguments: argparse.Namespace) -> int:
    """Change a user. Raises `Failure`."""
    user = user_named(arguments.name)
    values = resource.values_of(arguments)
    if arguments.administrator is not None:
        values |= dict.fromkeys(_ADMINISTRATOR, arguments.administrator)
    if arguments.administrator and user.is_service:
        raise Failure(f"{user} is a service account. Administrators are people.")
    resource.change(USERS, user, values)
    print_line(f"{user} is changed." if values else f"{user} is unchanged.")
    return 0


def password(arguments: argparse.Namespace) -> int:
    """Set and print a new password. It ends the user's sessions, and lifts a lock-out. Raises
    `Failure`."""
    new = secrets.token_urlsafe(15)
    user = user_named(arguments.name)
    with resource.failures():
        set_password(user, new)
    print(new)
    return 0


def second_factor_off(arguments: argparse.Namespace) -> int:
    """Remove a second factor, such as a lost phone. Raises `Failure` where there is none."""
    user = user_named(arguments.name)
    if not reset_second_factor(user):
        raise Failure(f"{user} has no second factor.")
    print_line(f"{user} signs in by password alone, until they set up a new second factor.")
    return 0


def set_role(arguments: argparse.Namespace) -> int:
    """Give or take a role. Raises `Failure`."""
    user, scope = user_named(arguments.name), _scope(arguments)
    assert scope is not None
    with resource.failures():
        if arguments.role != "none":
            print_line(f"{changes.set_role(user, scope, arguments.role)}.")
            return 0
        role = changes.membership_of(user, scope, Role.MEMBER)
        known = Membership.objects.filter(
            user=user, organization_id=role.organization_id, project=role.project
        ).first()
        if known is None:
            raise Failure(f"{user} has no role in {scope}.")
        MEMBERSHIPS.remove(EVERYTHING, known)
    print_line(f"{user} no longer has a role in {scope}.")
    return 0


def _scope(arguments: argparse.Namespace) -> Organization | Project | None:
    if arguments.organization:
        return organization_named(arguments.organization)
    return project_named(arguments.project) if arguments.project else None


def _roles(users: Sequence[User]) -> list[dict[str, list[str]]]:
    roles: dict[int, list[str]] = {}
    for membership in Membership.objects.select_related("organization", "project__organization"):
        scope = membership.project or membership.organization
        roles.setdefault(membership.user_id, []).append(f"{membership.role} of {scope}")
    return [{"roles": roles.get(user.pk, [])} for user in users]
