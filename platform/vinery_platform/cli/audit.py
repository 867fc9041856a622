"""`vinery audit`: the audit log, and whether it is intact."""

import argparse
from typing import Final

from django.db.models import Q, QuerySet

from vinery_accounts.models import AuditEntry, User
from vinery_accounts.resources.audit import AUDIT
from vinery_accounts.services import audit as audit_log
from vinery_platform.cli import resource
from vinery_platform.cli.find import options_of
from vinery_platform.cli.period import add_period
from vinery_platform.cli.resource import Option
from vinery_platform.cli.shape import Failure, subcommands

_FILTERS: Final = {
    "action": Option(help="only this action, such as key.revoke"),
    "organization_id": options_of("organization"),
    "search": Option(metavar="TEXT"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    show = resource.add_list(
        actions, AUDIT, "List changes, the newest first.", _FILTERS, has_num=True, rows=_selected
    )
    add_period(show, usual=None)
    show.add_argument(
        "--actor",
        metavar="ID_OR_NAME",
        help="only what this user or one of their keys did; or an actor by its name in the log",
    )
    show.add_argument(
        "--target",
        metavar="KIND[:ID]",
        help="only with targets of this kind, such as key; or with this one, such as key:12",
    )
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


def _selected(arguments: argparse.Namespace) -> QuerySet[AuditEntry]:
    """Return the entries that match the options. Raises `Failure`."""
    entries = resource.filtered(AUDIT, _FILTERS, arguments)
    if arguments.actor:
        entries = entries.filter(_by_actor(arguments.actor))
    if action := getattr(arguments, "filter_action", ""):
        _known(f"called {action}", Q(action=action))
    if arguments.target:
        kind, _, target_id = arguments.target.partition(":")
        with_id = {"target_id": target_id} if target_id else {}
        on_target = _known(f"done to {arguments.target}", Q(target_kind=kind, **with_id))
        entries = entries.filter(on_target)
    return entries


def _by_actor(word: str) -> Q:
    """Match the id or the name of a user, and the names of removed users and other actors."""
    users = User.objects.filter(username=word).order_by()
    of_user = Q(actor=word) | Q(actor_id__in=users.values("pk"))
    condition = Q(actor_id=int(word)) if word.isdecimal() else of_user
    return condition if users.exists() else _known(f"done by {word}", condition)


def _known(text: str, condition: Q) -> Q:
    """Return the condition. Raises `Failure` if no entry matches it, at any time: its value is
    probably misspelt."""
    if not AuditEntry.objects.filter(condition).exists():
        raise Failure(f"The log has nothing {text}, at any time.")
    return condition


def verify(arguments: argparse.Namespace) -> int:
    """Verify the chain of hashes. Raises `Failure` with the first break."""
    verdict = audit_log.verify(arguments.newest)
    if verdict.broken is not None:
        raise Failure(f"The audit log is broken ({verdict.broken}). {verdict.message}")
    print(f"The audit log is intact: {verdict.num_entries} entries.")
    print(f"Newest hash: {verdict.newest_hash}")
    return 0
