"""`vinery key`: make, list, change, pause, rotate and revoke API keys."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
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
    from accounts.models import ApiKey, Project, User

_PERIOD = re.compile(r"([1-9]\d{0,4})([mhdw])", re.ASCII)
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_HEADS = (
    *("id", "hint", "name", "user", "organization", "project", "state", "expires"),
    *("rotation_due", "last_used"),
)
_STATES = ("active", "paused", "expired", "revoked", "owner-inactive", "project-inactive")


def add_to(commands: Commands) -> None:
    """Add `vinery key` and what is under it."""
    key = commands.add_parser("key", help="make, list, pause, rotate and revoke API keys")
    actions = key.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_create(actions)

    show = actions.add_parser("list", help="list keys", description="List keys, the newest first.")
    show.add_argument("--user", metavar="NAME", help="only this user's")
    show.add_argument("--project", metavar="NAME", help="only this project's")
    show.add_argument("--state", choices=_STATES, help="only in this state")
    show.add_argument(
        "--search",
        metavar="TEXT",
        help="a part of the name, the hint, or the owner's or project's name",
    )
    add_json(show)
    show.set_defaults(run=list_keys)

    _add_change(actions)
    replace = actions.add_parser(
        "rotate",
        help="replace a key by a new one that may do the same",
        description="Replace a key by a new one that may do the same, and print it once.",
    )
    _add_key(replace)
    replace.add_argument(
        "--grace",
        type=period,
        default=timedelta(0),
        metavar="PERIOD",
        help="how long the old key goes on to work, like 30m, 12h, 30d or 4w (default: not at all)",
    )
    replace.set_defaults(run=rotate)
    for name, run, help_text in (
        ("pause", pause, "stop a key until it is resumed"),
        ("resume", resume, "let a paused key open the door again"),
        ("revoke", revoke, "stop a key for good"),
    ):
        action = actions.add_parser(
            name,
            help=help_text,
            description=f"{help_text.capitalize()}. Servers follow within a second.",
        )
        _add_key(action)
        action.set_defaults(run=run)


def _add_create(actions: Commands) -> None:
    make = actions.add_parser(
        "create",
        help="make a key",
        description="Make a key, and print it once.",
        epilog="Options that may be given several times allow each of their values; without "
        "them, all are allowed.",
    )
    make.add_argument("--name", required=True, help="what the key is for")
    make.add_argument("--user", help="whose key it is (default: the first administrator)")
    make.add_argument(
        "--project",
        metavar="NAME",
        help="PROJECT or ORGANISATION/PROJECT (default: the first of the user's)",
    )
    make.add_argument(
        "--scope",
        action="append",
        choices=("inference", "usage", "manage"),
        help="what it may be used for (default: inference and usage)",
    )
    for option, help_text in (
        ("--model", "a model that it may use"),
        ("--endpoint", "an endpoint that it may call, such as chat/completions"),
        ("--network", "a network that it may be used from, such as 10.0.0.0/8"),
    ):
        make.add_argument(
            option, action="append", default=[], metavar=option[2:].upper(), help=help_text
        )
    make.add_argument(
        "--expires-in",
        type=period,
        metavar="PERIOD",
        help="like 30m, 12h, 30d or 4w (default: never)",
    )
    for option, help_text in (
        ("--rotate-every", "it is due to be rotated after so long, like 90d (default: never)"),
        (
            "--rotation-grace",
            "so long after that it stops, unless it was rotated (default: it is only told to be "
            "overdue)",
        ),
    ):
        make.add_argument(option, type=_days, metavar="PERIOD", help=help_text)
    make.set_defaults(run=create)


def _add_change(actions: Commands) -> None:
    change = actions.add_parser(
        "change",
        help="change what a key may do",
        description="Change what a key may do; what is not named stays. Servers follow within a "
        "second.",
    )
    _add_key(change)
    change.add_argument("--name", help="what the key is for")
    change.add_argument(
        "--scope",
        action="append",
        choices=("inference", "usage", "manage"),
        help="what it may be used for; again: this, too",
    )
    for what, help_text in (
        ("model", "a model that it may use"),
        ("endpoint", "an endpoint that it may call, such as chat/completions"),
        ("network", "a network that it may be used from, such as 10.0.0.0/8"),
    ):
        some = change.add_mutually_exclusive_group()
        some.add_argument(
            f"--{what}",
            action="append",
            metavar=what.upper(),
            help=f"{help_text}; again: this, too",
        )
        some.add_argument(
            f"--any-{what}", dest=what, action="store_const", const=[], help=f"allow each {what}"
        )
    change.add_argument(
        "--expires-in",
        type=_expiry,
        default=argparse.SUPPRESS,
        metavar="PERIOD",
        help="from now, like 30m, 12h, 30d or 4w, or never",
    )
    for option, help_text in (
        ("--rotate-every", "it is due to be rotated so long after it was made, like 90d, or never"),
        ("--rotation-grace", "so long after that it stops, unless it was rotated, or never"),
    ):
        change.add_argument(
            option,
            type=_days_or_never,
            default=argparse.SUPPRESS,
            metavar="PERIOD",
            help=help_text,
        )
    change.set_defaults(run=change_key)


def _add_key(action: argparse.ArgumentParser) -> None:
    action.add_argument("key", metavar="ID_OR_HINT", help="the id, or the hint, from `key list`")


def period(text: str) -> timedelta:
    """A length of time such as 30d. Raises what argparse turns into a usage error."""
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a period like 30m, 12h, 30d or 4w")
    return int(match[1]) * _UNITS[match[2]]


def _days(text: str) -> int:
    """Of a period. Raises what argparse turns into a usage error."""
    length = period(text)
    if length % timedelta(days=1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, like 30d or 4w")
    return length.days


def _days_or_never(text: str) -> int | None:
    return None if text == "never" else _days(text)


def _expiry(text: str) -> timedelta | None:
    return None if text == "never" else period(text)


def create(arguments: argparse.Namespace) -> int:
    """Make a key and print its secret, alone on its line for scripts."""
    start_django()
    from accounts.keys.lifecycle import create_key
    from accounts.services.audit import writing

    lasts: timedelta | None = arguments.expires_in
    owner = _owner(arguments.user)
    with refusals(), writing():
        new = create_key(
            owner=owner,
            project=_project_for(owner, arguments.project),
            name=arguments.name,
            expires_at=datetime.now(UTC) + lasts if lasts else None,
            **({"scopes": arguments.scope} if arguments.scope else {}),
            allowed_models=arguments.model,
            allowed_endpoints=arguments.endpoint,
            allowed_networks=arguments.network,
            rotate_every_days=arguments.rotate_every,
            rotation_grace_days=arguments.rotation_grace,
        )
    print(new.secret)
    return 0


def change_key(arguments: argparse.Namespace) -> int:
    """Give the key that is named other values. Raises `Failure`."""
    start_django()
    from accounts.keys import lifecycle as keys

    named = {
        "name": arguments.name,
        "scopes": arguments.scope,
        "allowed_models": arguments.model,
        "allowed_endpoints": arguments.endpoint,
        "allowed_networks": arguments.network,
    }
    values = {name: value for name, value in named.items() if value is not None}
    if "expires_in" in arguments:
        lasts: timedelta | None = arguments.expires_in
        values["expires_at"] = datetime.now(UTC) + lasts if lasts else None
    for option, name in (
        ("rotate_every", "rotate_every_days"),
        ("rotation_grace", "rotation_grace_days"),
    ):
        if option in arguments:
            values[name] = getattr(arguments, option)
    with refusals():
        key = keys.change_key(_find(arguments.key), **values)
    say(f"{key} is changed." if values else f"{key} stays as it is.")
    return 0


def list_keys(arguments: argparse.Namespace) -> int:
    """Print keys, the newest first."""
    start_django()
    from accounts.keys.lifecycle import matching
    from accounts.models import ApiKey, KeyState
    from accounts.models.keys import in_state
    from vinery.cli.find import project_named, user_named

    keys = ApiKey.objects.select_related("owner", "project__organization")
    if arguments.user:
        keys = keys.filter(owner=user_named(arguments.user))
    if arguments.project:
        keys = keys.filter(project=project_named(arguments.project))
    now = datetime.now(UTC)
    if arguments.state:
        keys = keys.filter(in_state(KeyState(arguments.state.replace("-", " ")), now))
    if arguments.search:
        keys = keys.filter(matching(arguments.search))
    print_rows([_row(key, now) for key in keys], _HEADS, as_json=arguments.json)
    return 0


def rotate(arguments: argparse.Namespace) -> int:
    """Replace the key that is named, and print the new secret. Raises `Failure`."""
    start_django()
    from accounts.keys.lifecycle import rotate_key

    key = _find(arguments.key)
    with refusals():
        new = rotate_key(key, grace=arguments.grace)
    print(new.secret)
    return 0


def pause(arguments: argparse.Namespace) -> int:
    """Pause the one key that is named. Raises `Failure` for none, several or a revoked one."""
    return _act(arguments.key, "pause_key", "paused")


def resume(arguments: argparse.Namespace) -> int:
    """Resume the one key that is named. Raises `Failure` for none, several or a revoked one."""
    return _act(arguments.key, "resume_key", "resumed")


def revoke(arguments: argparse.Namespace) -> int:
    """Revoke the one key that is named. Raises `Failure` for none or several."""
    return _act(arguments.key, "revoke_key", "revoked")


def _act(id_or_hint: str, function: str, done: str) -> int:
    start_django()
    from accounts.keys import lifecycle as keys

    key = _find(id_or_hint)
    if key.revoked_at is not None and done != "revoked":
        raise Failure(f"{key} is revoked, for good. Make a new one.")
    getattr(keys, function)(key)
    say(f"{key} is {done}.")
    return 0


def _row(key: ApiKey, now: datetime) -> dict[str, Any]:
    return {
        "id": key.pk,
        "hint": key.hint,
        "name": key.name,
        "user": key.owner.get_username(),
        "project": key.project.name,
        "organization": key.project.organization.name,
        "state": key.state_at(now).value,
        "scopes": key.scopes,
        "models": key.allowed_models,
        "endpoints": key.allowed_endpoints,
        "networks": key.allowed_networks,
        "expires": key.expires_at,
        "rotate_every_days": key.rotate_every_days,
        "rotation_grace_days": key.rotation_grace_days,
        "rotation_due": key.rotation_due_at,
        "is_rotation_overdue": key.is_rotation_overdue(now),
        "last_used": key.last_used_at,
    }


def _find(id_or_hint: str) -> ApiKey:
    from vinery.cli.find import key_named

    return key_named(id_or_hint)


def _owner(username: str | None) -> User:
    from accounts.models import User

    people = User.objects.filter(is_active=True)
    if username is None:
        owner = people.filter(is_superuser=True).order_by("pk").first()
    else:
        owner = people.filter(username=username).first()
    if owner is None:
        raise Failure(f"There is no active user {username or 'who is an administrator'}.")
    return owner


def _project_for(owner: User, name: str | None) -> Project:
    """Where the key belongs. Raises `Failure` where its owner may have none."""
    from accounts.models import ApiKey
    from accounts.services.access import Access, Action
    from accounts.services.changes import home_project
    from vinery.cli.find import project_named

    # What they may now: the first project of an administrator makes them a member of it.
    access = Access.of(owner)
    project = project_named(name) if name else home_project(owner)
    if not access.may(Action.MANAGE, ApiKey(owner=owner, project=project)):
        raise Failure(f"{owner} is not a member of {project}. See: vinery user role --help")
    return project
