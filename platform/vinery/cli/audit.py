"""`vinery audit`: the audit log, and whether it is intact."""

from __future__ import annotations

import argparse

from django.db.models import Q, QuerySet

from accounts.models import AuditEntry, User
from accounts.resources.audit import AUDIT, SEARCH_HELP
from accounts.services import audit as audit_log
from vinery.cli import resource
from vinery.cli.find import ids_of
from vinery.cli.resource import as_help
from vinery.cli.shape import Commands, Failure, add_json, add_num
from vinery.cli.usage import add_period, period_of


def add_to(commands: Commands) -> None:
    """Add `vinery audit` and its commands."""
    actions = resource.add_group(commands, "audit", "read and verify the log of all changes")
    show = resource.add_command(actions, "list", list_entries, "List changes, the newest first.")
    _add_selection(show)
    add_num(show)
    add_json(show)
    check = resource.add_command(
        actions,
        "verify",
        verify,
        "Check that no entry was changed, removed or inserted.",
        description="Check that no entry was changed, removed or inserted, and print the newest "
        "hash. Keep that hash elsewhere, and give it the next time: then entries that were cut off "
        "the end are missed, too. The exit status is 1 for a broken log.",
    )
    check.add_argument("--newest", metavar="HASH", help="a hash that was once the newest")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add_period(parser, usual=None)
    parser.add_argument(
        "--actor",
        metavar="ID_OR_NAME",
        help="only what this user or one of their keys did; or an actor by its name in the log",
    )
    parser.add_argument("--action", help="only this action, such as key.revoke")
    parser.add_argument(
        "--target",
        type=_target,
        metavar="KIND[:ID]",
        help="only with targets of this kind, such as key; or with this one, such as key:12",
    )
    parser.add_argument(
        "--organization",
        action="append",
        metavar="ID_OR_NAME",
        help="only in this organisation",
    )
    parser.add_argument("--search", metavar="TEXT", help=as_help(SEARCH_HELP))


def list_entries(arguments: argparse.Namespace) -> int:
    """Print the newest entries. Raises `Failure`."""
    rows = list(_selected(arguments).order_by("-number")[: arguments.num])
    resource.show_table(AUDIT, rows, arguments)
    return 0


def _target(text: str) -> dict[str, str]:
    kind, _, target_id = text.partition(":")
    return {"target_kind": kind, **({"target_id": target_id} if target_id else {})}


def _selected(arguments: argparse.Namespace) -> QuerySet[AuditEntry]:
    since, until = period_of(arguments)
    entries = AuditEntry.objects.filter(
        created_at__gte=since, created_at__lt=until, **(arguments.target or {})
    )
    _check_known(arguments)
    if arguments.actor:
        entries = entries.filter(_by_actor(arguments.actor))
    if arguments.action:
        entries = entries.filter(action=arguments.action)
    if arguments.organization:
        organizations = ids_of("organization", arguments.organization)
        entries = entries.filter(organization_id__in=organizations)
    return audit_log.search(entries, arguments.search) if arguments.search else entries


def _check_known(arguments: argparse.Namespace) -> None:
    """Raise `Failure` for a value that no entry has, at any time: it is probably misspelt."""
    asked: dict[str, Q] = {}
    if arguments.actor and not User.objects.filter(username=arguments.actor).exists():
        asked[f"done by {arguments.actor}"] = _by_actor(arguments.actor)
    if arguments.action:
        asked[f"called {arguments.action}"] = Q(action=arguments.action)
    if arguments.target:
        asked[f"done to {':'.join(arguments.target.values())}"] = Q(**arguments.target)
    for text, condition in asked.items():
        if not AuditEntry.objects.filter(condition).exists():
            raise Failure(f"The log has nothing {text}, at any time.")


def _by_actor(word: str) -> Q:
    """Match the id or the name of a user, and the names of removed users and other actors."""
    if word.isdecimal():
        return Q(actor_id=int(word))
    users = User.objects.filter(username=word).order_by()
    return Q(actor=word) | Q(actor_id__in=users.values("pk"))


def verify(arguments: argparse.Namespace) -> int:
    """Verify the chain of hashes. Raises `Failure` with the first break."""
    verdict = audit_log.verify(arguments.newest)
    if verdict.broken is not None:
        raise Failure(f"The audit log is broken ({verdict.broken}). {verdict.message}")
    print(f"The audit log is intact: {verdict.num_entries} entries.")
    print(f"Newest hash: {verdict.newest_hash}")
    return 0
