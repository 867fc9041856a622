"""`vinery audit`: what was done by whom, and whether the log is whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vinery.cli.find import ids_of
from vinery.cli.shape import Commands, Failure, add_json, add_num, print_rows, start_django
from vinery.cli.usage import add_period, period_of

if TYPE_CHECKING:
    from django.db.models import Q, QuerySet

    from accounts.models import AuditEntry

_HEADS = ("number", "at", "actor", "ip", "action", "target", "changed")


def add_to(commands: Commands) -> None:
    """Add `vinery audit` and what is under it."""
    audit = commands.add_parser("audit", help="read and verify the log of all changes")
    actions = audit.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = actions.add_parser(
        "list", help="list the newest changes", description="List changes, the newest first."
    )
    _add_selection(show)
    add_num(show)
    add_json(show)
    show.set_defaults(run=list_entries)
    check = actions.add_parser(
        "verify",
        help="check that nothing was changed, taken out or put in",
        description="Check that no entry was changed, taken out or put in, and print the hash of "
        "the newest. Keep that hash elsewhere, and give it the next time: then entries that "
        "were cut off the end are missed, too. Ends with 1 when the log is broken.",
    )
    check.add_argument("--newest", metavar="HASH", help="a hash that was the newest once")
    check.set_defaults(run=verify)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add_period(parser, usual=None)
    parser.add_argument(
        "--actor",
        metavar="ID_OR_NAME",
        help="only what this user or one of their keys did; or whoever the log calls so",
    )
    parser.add_argument("--action", help="only this act, such as key.revoke")
    parser.add_argument(
        "--target",
        type=_target,
        metavar="KIND[:ID]",
        help="only what was done to these, such as key; or to this one, such as key:12",
    )
    parser.add_argument(
        "--organization",
        action="append",
        metavar="ID_OR_NAME",
        help="only in this organisation",
    )
    parser.add_argument(
        "--search",
        metavar="TEXT",
        help="a part of who, what, what to, or what was before or after; or an address",
    )


def list_entries(arguments: argparse.Namespace) -> int:
    """Print the newest entries."""
    start_django()
    rows = [
        {
            "number": entry.number,
            "at": entry.created_at,
            "actor": entry.actor,
            "ip": entry.ip,
            "action": entry.action,
            "target": entry.target,
            "target_id": entry.target_id,
            "changed": sorted(entry.after or entry.before or ()),
            "before": entry.before,
            "after": entry.after,
            "hash": entry.hash,
        }
        for entry in _wanted(arguments).order_by("-number")[: arguments.num]
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def _target(text: str) -> dict[str, str]:
    kind, _, target_id = text.partition(":")
    return {"target_kind": kind, **({"target_id": target_id} if target_id else {})}


def _wanted(arguments: argparse.Namespace) -> QuerySet[AuditEntry]:
    from accounts.models import AuditEntry
    from accounts.services.audit import search

    since, until = period_of(arguments)
    entries = AuditEntry.objects.filter(
        created_at__gte=since, created_at__lt=until, **(arguments.target or {})
    )
    _check_known(arguments)
    if arguments.actor:
        entries = entries.filter(_done_by(arguments.actor))
    if arguments.action:
        entries = entries.filter(action=arguments.action)
    if arguments.organization:
        places = ids_of("organization", arguments.organization)
        entries = entries.filter(organization_id__in=places)
    return search(entries, arguments.search) if arguments.search else entries


def _check_known(arguments: argparse.Namespace) -> None:
    """Raises `Failure` for a name that the log has at no time: nothing was found, because it is
    misspelt."""
    from django.db.models import Q

    from accounts.models import AuditEntry, User

    asked: dict[str, Q] = {}
    if arguments.actor and not User.objects.filter(username=arguments.actor).exists():
        asked[f"done by {arguments.actor}"] = _done_by(arguments.actor)
    if arguments.action:
        asked[f"called {arguments.action}"] = Q(action=arguments.action)
    if arguments.target:
        asked[f"done to {':'.join(arguments.target.values())}"] = Q(**arguments.target)
    for words, condition in asked.items():
        if not AuditEntry.objects.filter(condition).exists():
            raise Failure(f"The log has nothing {words}, at any time.")


def _done_by(word: str) -> Q:
    """The log keeps names of those who are gone, and of who never was a user."""
    from django.db.models import Q

    from accounts.models import User

    if word.isdecimal():
        return Q(actor_id=int(word))
    users = User.objects.filter(username=word).order_by()
    return Q(actor=word) | Q(actor_id__in=users.values("pk"))


def verify(arguments: argparse.Namespace) -> int:
    """Follow the chain. Raises `Failure` with the first break."""
    start_django()
    from accounts.services.audit import verify as follow

    verdict = follow(arguments.newest)
    if verdict.broken is not None:
        raise Failure(f"The audit log is broken ({verdict.broken}). {verdict.message}")
    print(f"The audit log is whole: {verdict.num_entries} entries.")
    print(f"Newest hash: {verdict.newest_hash}")
    return 0
