"""`vinery key`: create, list, change, pause, rotate, revoke and remove API keys."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Final

from vinery_accounts.models import ApiKey, Project, User
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.services.access import Access, Action
from vinery_accounts.services.audit import writing
from vinery_accounts.services.changes import home_project
from vinery_platform.cli import resource
from vinery_platform.cli.find import key_named, option_of, project_named
from vinery_platform.cli.period import period
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import Failure, print_note, subcommands


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


_FIELDS: Final = [name for name in KEYS.writable() if name not in ("owner", "project")]
_FILTERS: Final = {
    "owner": option_of("user"),
    "project": option_of("project"),
    "state": Option(help="only in this state", find=lambda name: name.replace("-", " ")),
    "scope": Option(),
    "search": Option(metavar="TEXT"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    make = resource.add_command(
        actions,
        "create",
        create,
        "Create a key, and print it once.",
        epilog="An option for a list may be given several times.",
    )
    name = Option(help="what the key is for", is_required=True)
    resource.add_fields(make, KEYS, {**_OPTIONS, "name": name}, _FIELDS)
    make.add_argument("--user", help="the owner (default: the first administrator)")
    make.add_argument(
        "--project",
        metavar="NAME",
        help="PROJECT or ORGANISATION/PROJECT (default: the first of the owner's)",
    )
    resource.add_list(actions, KEYS, "List keys, the newest first.", _FILTERS)
    of_key = ("key", "ID_OR_HINT", "the id, or the hint, from `key list`")
    one = RowCommands(actions, KEYS, key_named, *of_key)
    one.add_change(
        "Change a key. Options that are not given keep their values. Servers follow within a "
        "second.",
        _OPTIONS,
        _FIELDS,
    )
    rotate = one.add("rotate", rotate_key, KEYS.action("rotate").help)
    rotate.add_argument(
        "--grace",
        type=period,
        default=timedelta(0),
        metavar="PERIOD",
        help="how long the old key keeps working, like 30m, 12h, 30d or 4w (default: not at all)",
    )
    one.add_actions("pause", "resume", "revoke")
    one.add_remove(
        "Delete a key for good, so that its project can be removed. Revoke a key to stop it."
    )


def create(arguments: argparse.Namespace) -> str:
    """Create a key. Returns its secret, which scripts read. Raises `Failure`."""
    owner = _owner(arguments.user)
    with writing():
        project = _project_for(owner, arguments.project)
        values = {**resource.values_of(arguments), "owner": owner, "project": project}
        new = KEYS.create(EVERYTHING, values)
    print_note(f"The API key of {owner} for {project}. It is not shown again:")
    return new.secret


def rotate_key(key: ApiKey, arguments: argparse.Namespace) -> str:
    """Rotate a key. Returns the new secret."""
    grace_s = arguments.grace.total_seconds()
    new = KEYS.act(EVERYTHING, KEYS.action("rotate"), key, grace_s=grace_s)
    print_note(f"The API key that replaces {key}. It is not shown again:")
    return str(new.secret)


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
