"""`vinery audit`: what was done by whom, and whether the log is whole."""

from __future__ import annotations

import argparse

from vinery.cli.shape import Commands, Failure, add_json, print_rows, start_django

_HEADS = ("number", "at", "actor", "ip", "action", "target", "changed")


def add_to(commands: Commands) -> None:
    """Add `vinery audit` and what is under it."""
    audit = commands.add_parser("audit", help="read and verify the log of all changes")
    actions = audit.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = actions.add_parser(
        "list", help="list the newest changes", description="List changes, the newest first."
    )
    show.add_argument("--search", metavar="TEXT", help="in who, what and what to; or an address")
    show.add_argument(
        "--num", type=int, default=50, metavar="N", help="how many (default: %(default)s)"
    )
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


def list_entries(arguments: argparse.Namespace) -> int:
    """Print the newest entries."""
    start_django()
    from accounts.audit import search
    from accounts.models import AuditEntry

    entries = AuditEntry.objects.order_by("-number")
    if arguments.search:
        entries = search(entries, arguments.search)
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
        for entry in entries[: max(arguments.num, 0)]
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Follow the chain. Raises `Failure` with the first break."""
    start_django()
    from accounts.audit import verify as follow

    verdict = follow(arguments.newest)
    if verdict.broken is not None:
        raise Failure(f"The audit log is broken ({verdict.broken}). {verdict.message}")
    print(f"The audit log is whole: {verdict.num_entries} entries.")
    print(f"Newest hash: {verdict.newest_hash}")
    return 0
