"""`vinery refusals`: which requests a limit refused or cut short, or would have, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vinery.cli.find import METAVARS, ids_of
from vinery.cli.limit import METRICS, SCOPES
from vinery.cli.shape import Commands, add_json, add_num, print_rows, start_django
from vinery.cli.usage import add_file, add_period, output, period_of

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from accounts.models import RefusedRequest

_HEADS = (
    *("at", "user", "key", "scope", "whose", "metric", "window", "amount", "level", "needed"),
    *("wait_s", "effect"),
)


def add_to(commands: Commands) -> None:
    """Add `vinery refusals` and what is under it."""
    refusals = commands.add_parser("refusals", help="see why limits refused requests")
    actions = refusals.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = actions.add_parser(
        "list",
        help="list the newest refusals",
        description="List refusals, the newest first: whose limit it was, how full it was, what "
        "the request needed, and how long it should have waited.",
    )
    _add_selection(show)
    add_num(show)
    add_json(show)
    show.set_defaults(run=list_refusals)
    export = actions.add_parser(
        "export",
        help="write refusals to a file",
        description="Write one line for each limit that refused a request or cut it short, in "
        "order of time.",
    )
    _add_selection(export)
    add_file(export)
    export.set_defaults(run=export_refusals)


def list_refusals(arguments: argparse.Namespace) -> int:
    """Print the newest refusals."""
    start_django()
    from accounts.resources.owners import owners_of
    from accounts.services.access import Access
    from accounts.usage.effects import with_effect

    rows = with_effect(_wanted(arguments)).order_by("-created_at", "-id")
    found = list(rows[: arguments.num])
    names = owners_of(Access(None, is_superuser=True), [row.scope for row in found])
    print_rows([_row(row, names[row.scope]) for row in found], _HEADS, as_json=arguments.json)
    return 0


def export_refusals(arguments: argparse.Namespace) -> int:
    """Write rows as they are read."""
    start_django()
    from accounts.usage.export import Format, export_refusals

    with output(arguments.output) as file:
        for text in export_refusals(_wanted(arguments), Format(arguments.format)):
            file.write(text)
    return 0


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    for name, metavar in METAVARS.items():
        parser.add_argument(
            f"--{name}", action="append", metavar=metavar, help=f"only of this {name}'s requests"
        )
    parser.add_argument(
        "--limit", type=int, action="append", metavar="ID", help="only by this limit"
    )
    parser.add_argument("--request", metavar="ID", help="only of this request")
    parser.add_argument("--model", metavar="NAME", help="only of requests to this model")
    parser.add_argument(
        "--scope", metavar="SCOPE", type=_scope, help="only by limits of this scope, such as key:12"
    )
    parser.add_argument("--metric", choices=METRICS, help="only by limits of this metric")
    parser.add_argument(
        "--window",
        choices=("minute", "day", "week", "month", "none"),
        help="only by limits of this window",
    )
    parser.add_argument(
        "--shadow",
        action=argparse.BooleanOptionalAction,
        help="only by limits that refuse nothing, or only by the others",
    )


def _scope(text: str) -> str:
    """Raises what argparse turns into a usage error."""
    kind = text.partition(":")[0]
    if kind not in SCOPES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no scope: it begins with one of {', '.join(SCOPES)}, such as key:12"
        )
    return text


def _wanted(arguments: argparse.Namespace) -> QuerySet[RefusedRequest]:
    from accounts.models import RefusedRequest

    since, until = period_of(arguments)
    asked: dict[str, Any] = {
        **{
            f"{name}_id__in": ids_of(name, words)
            for name in METAVARS
            if (words := getattr(arguments, name))
        },
        "limit_id__in": arguments.limit,
        "request_id": arguments.request,
        "model": arguments.model,
        "scope": arguments.scope,
        "metric": arguments.metric,
        "window": arguments.window,
        "is_shadow": arguments.shadow,
    }
    return RefusedRequest.objects.filter(
        created_at__gte=since,
        created_at__lt=until,
        **{name: value for name, value in asked.items() if value is not None},
    )


def _row(row: Any, whose: str) -> dict[str, Any]:
    return {
        "id": row.pk,
        "at": row.created_at,
        "request_id": row.request_id,
        "user": row.username,
        "key": row.key_name,
        "project": row.project_name,
        "organization": row.organization_name,
        "model": row.model,
        "limit_id": row.limit_id,
        "scope": row.scope,
        "whose": whose,
        "metric": row.metric,
        "window": row.window,
        "amount": row.amount,
        "level": row.level,
        "needed": row.needed,
        "wait_s": row.wait_s,
        "shadow": row.is_shadow,
        "effect": row.effect,
    }
