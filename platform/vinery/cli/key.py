"""`vinery key`: create, list, change, pause, rotate and revoke API keys."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from accounts.models import ApiKey, Project, User
from accounts.resources.base import EVERYTHING
from accounts.resources.keys import KEYS
from accounts.services.access import Access, Action
from accounts.services.audit import writing
from accounts.services.changes import home_project
from vinery.cli import resource
from vinery.cli.find import key_named, project_named, user_named
from vinery.cli.resource import Option
from vinery.cli.shape import Commands, Failure, print_line

_PERIOD: Final = re.compile(r"([1-9]\d{0,4})([mhdw])", re.ASCII)
_UNITS: Final = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_KEY: Final = ("key", "ID_OR_HINT", "the id, or the hint, from `key list`")


def period(text: str) -> timedelta:
    """Return a length of time such as 30d. Raises what argparse turns into a usage error."""
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a period like 30m, 12h, 30d or 4w")
    return int(match[1]) * _UNITS[match[2]]


def _days_or_never(text: str) -> int | None:
    if text == "never":
        return None
    length = period(text)
    if length % timedelta(days=1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, like 30d or 4w")
    return length.days


def _expiry(text: str) -> datetime | None:
    return None if text == "never" else datetime.now(UTC) + period(text)


_OPTIONS: Final = {
    "scopes": Option("--scope"),
    "models": Option("--model", clear="--any-model"),
    "endpoints": Option("--endpoint", clear="--any-endpoint"),
    "networks": Option("--network", clear="--any-network"),
    "expires_at": Option(
        "--expires-in", _expiry, "PERIOD", "from now, like 30m, 12h, 30d or 4w, or never"
    ),
    "rotate_every_days": Option(
        "--rotate-every",
        _days_or_never,
        "PERIOD",
        "the rotation interval, from the creation of the key, like 90d, or never",
    ),
    "rotation_grace_days": Option(
        "--rotation-grace",
        _days_or_never,
        "PERIOD",
        "how long after a missed rotation the key expires, like 7d, or never",
    ),
}


def add_to(commands: Commands) -> None:
    """Add `vinery key` and its commands."""
    actions = resource.add_group(commands, "key", "create, list, pause, rotate and revoke API keys")
    _add_create(actions)
    resource.add_list(
        actions,
        KEYS,
        "List keys, the newest first.",
        {
            "--user": ("owner", lambda name: user_named(name).pk),
            "--project": ("project", lambda name: project_named(name).pk),
            "--state": ("state", lambda name: name.replace("-", " ")),
            "--search": ("search", None),
        },
    )
    change = resource.add_command(
        actions,
        "change",
        change_key,
        "Change a key. Options that are not given keep their values. Servers follow within a "
        "second.",
    )
    change.add_argument(_KEY[0], metavar=_KEY[1], help=_KEY[2])
    resource.add_fields(change, KEYS, resource.writable_fields(KEYS), _OPTIONS)
    rotate = resource.add_command(actions, "rotate", rotate_key, KEYS.action("rotate").help)
    rotate.add_argument(_KEY[0], metavar=_KEY[1], help=_KEY[2])
    rotate.add_argument(
        "--grace",
        type=period,
        default=timedelta(0),
        metavar="PERIOD",
        help="how long the old key keeps working, like 30m, 12h, 30d or 4w (default: not at all)",
    )
    resource.add_actions(
        actions,
        KEYS,
        key_named,
        ("pause", "resume", "revoke"),
        argument=_KEY[0],
        metavar=_KEY[1],
        help=_KEY[2],
    )


def _add_create(actions: Commands) -> None:
    make = resource.add_command(
        actions,
        "create",
        create,
        "Create a key, and print it once.",
        epilog="An option for a list may be given several times.",
    )
    make.add_argument("--name", required=True, help="what the key is for")
    make.add_argument("--user", help="the owner (default: the first administrator)")
    make.add_argument(
        "--project",
        metavar="NAME",
        help="PROJECT or ORGANISATION/PROJECT (default: the first of the owner's)",
    )
    names = resource.writable_fields(KEYS, without=["name"])
    resource.add_fields(make, KEYS, names, _OPTIONS)


def create(arguments: argparse.Namespace) -> int:
    """Create a key and print its secret alone on its line, for scripts. Raises `Failure`."""
    owner = _owner(arguments.user)
    with resource.failures(), writing():
        project = _project_for(owner, arguments.project)
        values = resource.values_of(arguments)
        fixed = {"owner": owner, "project": project, "name": arguments.name}
        new = KEYS.create(EVERYTHING, {**values, **fixed})
    print(new.secret)
    return 0


def change_key(arguments: argparse.Namespace) -> int:
    """Change a key. Raises `Failure`."""
    values = resource.values_of(arguments)
    key = resource.change(KEYS, key_named(arguments.key), values)
    print_line(f"{key} is changed." if values else f"{key} is unchanged.")
    return 0


def rotate_key(arguments: argparse.Namespace) -> int:
    """Rotate a key, and print the new secret. Raises `Failure`."""
    grace_s = arguments.grace.total_seconds()
    with resource.failures():
        key = key_named(arguments.key)
        new = KEYS.act(EVERYTHING, KEYS.action("rotate"), key, grace_s=grace_s)
    print(new.secret)
    return 0


def _owner(username: str | None) -> User:
    people = User.objects.filter(is_active=True)
    if username is None:
        owner = people.filter(is_superuser=True).order_by("pk").first()
    else:
        owner = people.filter(username=username).first()
    if owner is None:
        raise Failure(f"There is no active user {username or 'who is an administrator'}.")
    return owner


def _project_for(owner: User, name: str | None) -> Project:
    """Return the project of a new key. Raises `Failure` where its owner may have none."""
    # Read before `home_project`, which makes an administrator a member of their first project.
    access = Access.of(owner)
    project = project_named(name) if name else home_project(owner)
    if not access.may(Action.MANAGE, ApiKey(owner=owner, project=project)):
        raise Failure(f"{owner} is not a member of {project}. See: vinery user role --help")
    return project
