"""`vinery user`: people and service accounts, their roles, and the way back in."""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import TYPE_CHECKING, Any

from vinery.cli.shape import (
    Commands,
    Failure,
    add_json,
    print_rows,
    refusals,
    say,
    start_django,
)

if TYPE_CHECKING:
    from accounts.models import Organization, Project

_ROLES = ("viewer", "member", "admin", "owner")
_ADMINISTRATOR: dict[str, Any] = {"is_superuser": True, "is_staff": True}
_HEADS = ("id", "name", "kind", "active", "roles", "last_login")


def add_to(commands: Commands) -> None:
    """Add `vinery user` and what is under it."""
    user = commands.add_parser(
        "user", help="make, list, deactivate and remove users, give them roles"
    )
    actions = user.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_create(actions)
    show = actions.add_parser("list", help="list users", description="List users by name.")
    add_json(show)
    show.set_defaults(run=list_users)
    for name, run, help_text in (
        ("deactivate", deactivate, "let a user neither sign in nor use their keys"),
        ("activate", activate, "let a deactivated user in again"),
        ("remove", remove, "remove a user for good, with their keys, roles and limits"),
        ("password", password, "give a user a new random password, and print it once"),
        ("second-factor-off", second_factor_off, "let a password alone suffice for now"),
    ):
        action = actions.add_parser(name, help=help_text, description=f"{help_text}.".capitalize())
        action.add_argument("name", metavar="NAME", help="the user's name")
        action.set_defaults(run=run)
    change = actions.add_parser(
        "change",
        help="change a user's e-mail address or names, make them an administrator",
        description="Change a user's e-mail address or names, or whether they are an "
        "administrator; what is not named stays.",
    )
    change.add_argument("name", metavar="NAME", help="the user's name")
    for option, help_text in (
        ("email", "their e-mail address; empty for none"),
        ("first-name", "their first name"),
        ("last-name", "their last name"),
    ):
        change.add_argument(f"--{option}", metavar="TEXT", help=help_text)
    change.add_argument(
        "--administrator",
        action=argparse.BooleanOptionalAction,
        help="whether they may everything on this platform, in the admin too",
    )
    change.set_defaults(run=change_user)
    role = actions.add_parser(
        "role",
        help="give a user a role, or take it",
        description="Give a user a role in an organisation or in one project, or take it.",
    )
    role.add_argument("name", metavar="NAME", help="the user's name")
    role.add_argument("role", choices=(*_ROLES, "none"), help="none takes the role")
    _add_place(role, required=True)
    role.set_defaults(run=set_role)


def _add_create(actions: Commands) -> None:
    make = actions.add_parser(
        "create",
        help="make a user",
        description="Make a user. A person gets a random password, which is printed once. "
        "Without --organization or --project they have no role anywhere, and no keys, until "
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
        help="somebody who may everything on this platform, in the admin too",
    )
    make.add_argument(
        "--no-password",
        action="store_true",
        help="for somebody who signs in elsewhere; nothing is printed",
    )
    make.add_argument("--role", choices=_ROLES, help="what they may do there (default: member)")
    _add_place(make, required=False)
    make.set_defaults(run=create)


def _add_place(parser: argparse.ArgumentParser, *, required: bool) -> None:
    place = parser.add_mutually_exclusive_group(required=required)
    place.add_argument("--organization", metavar="NAME", help="a role in the whole of it")
    place.add_argument(
        "--project", metavar="NAME", help="a role in this project: PROJECT or ORGANISATION/PROJECT"
    )


def create(arguments: argparse.Namespace) -> int:
    """Make a user, and print the password that they got. Raises `Failure`."""
    start_django()
    from accounts.services import audit, changes

    has_password = not (arguments.service or arguments.no_password)
    password = secrets.token_urlsafe(15) if has_password else None
    place = _place(arguments)
    if arguments.role and place is None:
        raise Failure("Say where they have this role, with --organization or --project.")
    with refusals(), audit.writing():
        user = changes.add_user(
            arguments.name,
            password=password,
            email=arguments.email,
            is_service=arguments.service,
            place=place,
            role=arguments.role or "member",
        )
        if arguments.administrator:
            changes.change(user, **_ADMINISTRATOR)
    print(password or f"{arguments.name} is made.")
    if place is None and not arguments.administrator:
        # Beside what is printed for scripts.
        hint = f"{arguments.name} has no role anywhere yet. See: vinery user role --help"
        print(f"vinery: {hint}", file=sys.stderr)
    return 0


def list_users(arguments: argparse.Namespace) -> int:
    """Print all users."""
    start_django()
    from accounts.models import Membership, User

    roles: dict[int, list[str]] = {}
    for membership in Membership.objects.select_related("organization", "project__organization"):
        place = membership.project or membership.organization
        roles.setdefault(membership.user_id, []).append(f"{membership.role} of {place}")
    rows = [
        {
            "id": user.pk,
            "name": user.username,
            "email": user.email,
            "kind": _kind(user.is_service, user.is_superuser),
            "active": user.is_active,
            "roles": roles.get(user.pk, []),
            "last_login": user.last_login,
        }
        for user in User.objects.order_by("username")
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def change_user(arguments: argparse.Namespace) -> int:
    """Give a user other values. Raises `Failure`."""
    start_django()
    from accounts.services import changes
    from vinery.cli.find import user_named

    named = {name: getattr(arguments, name) for name in ("email", "first_name", "last_name")}
    values: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    user = user_named(arguments.name)
    if arguments.administrator is not None:
        values |= dict.fromkeys(_ADMINISTRATOR, arguments.administrator)
    if arguments.administrator and user.is_service:
        raise Failure(f"{user} is a service account. Administrators are people.")
    with refusals():
        changes.change(user, **values)
    say(f"{user} is changed." if values else f"{user} stays as they are.")
    return 0


def deactivate(arguments: argparse.Namespace) -> int:
    """Stop a user and their keys. Raises `Failure`."""
    return _set_active(arguments.name, is_active=False)


def activate(arguments: argparse.Namespace) -> int:
    """Let them in again. Raises `Failure`."""
    return _set_active(arguments.name, is_active=True)


def remove(arguments: argparse.Namespace) -> int:
    """Their keys, roles and limits go with them, and what they have used stays in the books.
    Raises `Failure`."""
    start_django()
    from accounts.services import changes
    from vinery.cli.find import user_named

    user = user_named(arguments.name)
    with refusals():
        changes.remove(user)
    say(f"Removed: {user}.")
    return 0


def password(arguments: argparse.Namespace) -> int:
    """Set and print a new password, which also ends the person's sessions, and opens the door
    that wrong ones have closed."""
    start_django()
    from accounts.signin.recovery import set_password
    from vinery.cli.find import user_named

    new = secrets.token_urlsafe(15)
    user = user_named(arguments.name)
    with refusals():
        set_password(user, new)
    print(new)
    return 0


def second_factor_off(arguments: argparse.Namespace) -> int:
    """For whoever lost their phone. Raises `Failure` for somebody without a second factor."""
    start_django()
    from accounts.signin.recovery import reset_second_factor
    from vinery.cli.find import user_named

    user = user_named(arguments.name)
    if not reset_second_factor(user):
        raise Failure(f"{user} has no second factor.")
    say(f"{user} signs in by password alone, until they set up a new second factor.")
    return 0


def set_role(arguments: argparse.Namespace) -> int:
    """Give or take a role. Raises `Failure`."""
    start_django()
    from accounts.models import Membership
    from accounts.services import changes
    from vinery.cli.find import user_named

    user, place = user_named(arguments.name), _place(arguments)
    assert place is not None
    with refusals():
        if arguments.role != "none":
            say(f"{changes.set_role(user, place, arguments.role)}.")
            return 0
        wanted = changes.membership_of(user, place, "member")
        known = Membership.objects.filter(
            user=user, organization_id=wanted.organization_id, project=wanted.project
        ).first()
        if known is None:
            raise Failure(f"{user} has no role in {place}.")
        changes.remove(known)
    say(f"{user} has no role in {place} any more.")
    return 0


def _set_active(name: str, *, is_active: bool) -> int:
    start_django()
    from accounts.services import changes
    from vinery.cli.find import user_named

    user = user_named(name)
    with refusals():
        changes.set_active(user, is_active)
    say(f"{name} is {'active' if is_active else 'deactivated, and so are their keys'}.")
    return 0


def _place(arguments: argparse.Namespace) -> Organization | Project | None:
    from vinery.cli.find import organization_named, project_named

    if arguments.organization:
        return organization_named(arguments.organization)
    return project_named(arguments.project) if arguments.project else None


def _kind(is_service: bool, is_superuser: bool) -> str:  # noqa: FBT001
    if is_superuser:
        return "administrator"
    return "service" if is_service else "person"
