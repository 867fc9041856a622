"""`vinery key`: make, list and revoke API keys."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from vinery.cli.shape import Commands, Failure, start_django, table

if TYPE_CHECKING:
    from accounts.models import ApiKey, User

_PERIOD = re.compile(r"([1-9]\d{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def add_to(commands: Commands) -> None:
    """Add `vinery key` and what is under it."""
    key = commands.add_parser("key", help="make, list and revoke API keys")
    actions = key.add_subparsers(title="commands", metavar="COMMAND", required=True)

    make = actions.add_parser(
        "create", help="make a key", description="Make a key, and print it once."
    )
    make.add_argument("--name", required=True, help="what the key is for")
    make.add_argument("--user", help="whose key it is (default: the first administrator)")
    make.add_argument(
        "--expires-in", type=period, metavar="PERIOD", help="like 12h, 30d or 4w (default: never)"
    )
    make.set_defaults(run=create)

    show = actions.add_parser("list", help="list all keys", description="List all keys.")
    show.set_defaults(run=list_keys)

    stop = actions.add_parser(
        "revoke",
        help="stop a key for good",
        description="Stop a key for good. Servers refuse it within a second.",
    )
    stop.add_argument("key", metavar="ID_OR_HINT", help="the id, or the hint, from `key list`")
    stop.set_defaults(run=revoke)


def period(text: str) -> timedelta:
    """A length of time such as 30d. Raises what argparse turns into a usage error."""
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a period like 12h, 30d or 4w")
    return int(match[1]) * _UNITS[match[2]]


def create(arguments: argparse.Namespace) -> int:
    """Make a key and print its secret, alone on its line for scripts."""
    start_django()
    from accounts.keys import create_key

    lasts: timedelta | None = arguments.expires_in
    expires_at = datetime.now(UTC) + lasts if lasts else None
    new = create_key(owner=_owner(arguments.user), name=arguments.name, expires_at=expires_at)
    print(new.secret)
    return 0


def list_keys(_: argparse.Namespace) -> int:
    """Print a table of all keys, the newest first."""
    start_django()
    from accounts.models import ApiKey

    now = datetime.now(UTC)
    rows = [
        _row(key, now) for key in ApiKey.objects.select_related("owner", "project__organization")
    ]
    print(table(("ID", "HINT", "NAME", "USER", "STATE", "EXPIRES", "LAST USED"), rows))
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """Revoke the one key that is named. Raises `Failure` for none or several."""
    start_django()
    from accounts.keys import revoke_key

    key = _find(arguments.key)
    revoke_key(key)
    print(f"{key} is revoked.")
    return 0


def _row(key: ApiKey, now: datetime) -> tuple[str, ...]:
    return (
        str(key.pk),
        key.hint,
        key.name,
        key.owner.get_username(),
        key.state_at(now).value,
        _day(key.expires_at),
        _day(key.last_used_at),
    )


def _day(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M") if moment else "-"


def _find(id_or_hint: str) -> ApiKey:
    from accounts.models import ApiKey

    by = {"pk": id_or_hint} if id_or_hint.isdecimal() else {"hint": id_or_hint}
    found = list(ApiKey.objects.filter(**by)[:2])
    if not found:
        raise Failure(f"There is no key {id_or_hint}. See: vinery key list")
    if len(found) > 1:
        raise Failure(f"Several keys have the hint {id_or_hint}. Use the id from: vinery key list")
    return found[0]


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
