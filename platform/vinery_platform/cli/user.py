"""`vinery user`: people and service accounts, their roles, passwords and second factors."""

import argparse
from typing import Any, Final

from vinery_accounts.models import Organization, Project, Role, User
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.users import MEMBERSHIPS, USERS
from vinery_accounts.services import audit, changes
from vinery_accounts.signin.factors import reset_second_factor, set_password
from vinery_platform.cli import resource
from vinery_platform.cli.find import organization_named, project_named, user_named
from vinery_platform.cli.organization import activated
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import Commands, Failure, print_note, subcommands

_ROLES: Final = tuple(reversed(Role.values))
_ADMINISTRATOR: Final[dict[str, Any]] = {"is_superuser": True, "is_staff": True}
_FIELDS: Final = {
    "email": Option(metavar="TEXT", help="their e-mail address; empty for none"),
    "first_name": Option(metavar="TEXT", help="their first name"),
    "last_name": Option(metavar="TEXT", help="their last name"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    _add_create(actions)
    roles = ("memberships__organization", "memberships__project__organization")
    users = USERS.rows(EVERYTHING).prefetch_related(*roles)
    resource.add_list(actions, USERS, "List users by name.", rows=lambda _: users.all())
    one = RowCommands(actions, USERS, user_named, help="the user's name")
    one.add_actions(
        "deactivate",
        "activate",
        done=lambda row, action: activated(row, action).replace("its", "their"),
    )
    one.add_remove(
        "Remove a user for good, with their keys, roles and limits. Their usage records stay."
    )
    one.add("password", password, "Give a user a new random password, and print it once.")
    one.add("second-factor-off", second_factor_off, "Remove the second factor of a user.")
    change = one.add_change(
        "Change a user's e-mail address or names, or make them an administrator. Options that are "
        "not given keep their values.",
        _FIELDS,
        run=change_user,
    )
    change.add_argument(
        "--administrator",
        action=argparse.BooleanOptionalAction,
        help="whether they may do everything on this platform, in the admin too",
    )
    role = one.add(
        "role", set_role, "Give a user a role in an organisation or in one project, or take it."
    )
    role.add_argument("role", choices=(*_ROLES, "none"), help="none takes the role")
    _add_scope(role, required=True)


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
    resource.add_fields(make, USERS, {"email": Option(help="their e-mail address")})
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


def create(arguments: argparse.Namespace) -> str:
    """Create a user. Returns their password. Raises `Failure`."""
    has_password = not (arguments.service or arguments.no_password)
    new_password = changes.new_password() if has_password else None
    scope = _scope(arguments)
    if arguments.role and scope is None:
        raise Failure("Name where they have this role, with --organization or --project.")
    values = {
        **resource.values_of(arguments),
        "username": arguments.name,
        "password": new_password,
        "is_service": arguments.service,
        "organization": scope,
        "role": arguments.role or Role.MEMBER,
    }
    with audit.writing():
        user = USERS.create(EVERYTHING, values)
        if arguments.administrator:
            changes.change(user, **_ADMINISTRATOR)
    if scope is None and not arguments.administrator:
        print_note(f"{arguments.name} has no role anywhere yet. See: vinery user role --help")
    if new_password is None:
        return f"{arguments.name} is created."
    print_note(f"The password of {arguments.name}. It is not shown again:")
    return new_password


def change_user(user: User, arguments: argparse.Namespace) -> str:
    values = resource.values_of(arguments)
    if arguments.administrator is not None:
        values |= dict.fromkeys(_ADMINISTRATOR, arguments.administrator)
    if arguments.administrator and user.is_service:
        raise Failure(f"{user} is a service account. Administrators are people.")
    USERS.change(EVERYTHING, user, values)
    return f"{user} is changed." if values else f"{user} is unchanged."


def password(user: User, _: argparse.Namespace) -> str:
    """Set a new password and return it. It ends the user's sessions, and lifts a lock-out."""
    new = changes.new_password()
    set_password(user, new)
    print_note(f"The new password of {user}. It is not shown again:")
    return new


def second_factor_off(user: User, _: argparse.Namespace) -> str:
    """Remove a second factor, such as a lost phone. Raises `Failure` where there is none."""
    if not reset_second_factor(user):
        raise Failure(f"{user} has no second factor.")
    return f"{user} signs in by password alone, until they set up a new second factor."


def set_role(user: User, arguments: argparse.Namespace) -> str:
    scope = _scope(arguments)
    assert scope is not None
    if arguments.role != "none":
        return f"{changes.set_role(user, scope, arguments.role)}."
    known = changes.known_membership(user, scope)
    if known is None:
        raise Failure(f"{user} has no role in {scope}.")
    MEMBERSHIPS.remove(EVERYTHING, known)
    return f"{user} no longer has a role in {scope}."


def _scope(arguments: argparse.Namespace) -> Organization | Project | None:
    if arguments.organization:
        return organization_named(arguments.organization)
    return project_named(arguments.project) if arguments.project else None
