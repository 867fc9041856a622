"""`vinery refusals`: which requests a limit refused, cut short or would have refused, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from accounts.models import RefusedRequest
from accounts.resources.base import EVERYTHING
from accounts.resources.owners import owners_of
from accounts.resources.refusals import REFUSALS
from accounts.usage import export
from accounts.usage.effects import with_effect
from vinery.cli import resource
from vinery.cli.find import METAVARS, ids_of
from vinery.cli.limit import METRICS, SCOPES, WINDOWS
from vinery.cli.resource import as_help
from vinery.cli.shape import Commands, add_json, add_num
from vinery.cli.usage import add_file, add_period, output, period_of

_FILTERS = {
    "request": ("request_id", {"metavar": "ID"}),
    "model": ("model", {"metavar": "NAME"}),
    "metric": ("metric", {"choices": METRICS}),
    "window": ("window", {"choices": WINDOWS}),
    "shadow": ("is_shadow", {"action": argparse.BooleanOptionalAction}),
}


def add_to(commands: Commands) -> None:
    """Add `vinery refusals` and its commands."""
    actions = resource.add_group(commands, "refusals", "see why limits refused requests")
    show = resource.add_command(
        actions,
        "list",
        list_refusals,
        "List the newest refusals.",
        description="List refusals, the newest first: the limit's owner, its level, the amount "
        "that the request needed, and how long the client should have waited.",
    )
    _add_selection(show)
    add_num(show)
    add_json(show)
    to_file = resource.add_command(
        actions,
        "export",
        export_refusals,
        "Write refusals to a file.",
        description="Write one line for each limit that refused a request or cut it short, in "
        "order of time.",
    )
    _add_selection(to_file)
    add_file(to_file)


def list_refusals(arguments: argparse.Namespace) -> int:
    """Print the newest refusals. Raises `Failure`."""
    rows = with_effect(_selected(arguments)).order_by("-created_at", "-id")
    resource.show_table(REFUSALS, list(rows[: arguments.num]), arguments, _names)
    return 0


def export_refusals(arguments: argparse.Namespace) -> int:
    """Write refusals as they are read. Raises `Failure`."""
    with output(arguments.output) as file:
        rows = _selected(arguments)
        for text in export.export_refusals(rows, export.Format(arguments.format)):
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
    fields = REFUSALS.filters().fields
    for name, (column, details) in _FILTERS.items():
        text = as_help(str(fields[column].help_text))
        parser.add_argument(f"--{name}", help=text, **details)  # type: ignore[arg-type]
    parser.add_argument(
        "--scope", metavar="SCOPE", type=_scope, help=as_help(str(fields["scope"].help_text))
    )


def _scope(text: str) -> str:
    """Return the scope. Raises what argparse turns into a usage error."""
    if text.partition(":")[0] not in SCOPES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no scope: it begins with one of {', '.join(SCOPES)}, such as key:12"
        )
    return text


def _selected(arguments: argparse.Namespace) -> QuerySet[RefusedRequest]:
    since, until = period_of(arguments)
    asked: dict[str, Any] = {
        **{
            f"{name}_id__in": ids_of(name, words)
            for name in METAVARS
            if (words := getattr(arguments, name))
        },
        **{column: getattr(arguments, name) for name, (column, _) in _FILTERS.items()},
        "limit_id__in": arguments.limit,
        "scope": arguments.scope,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    rows = RefusedRequest.objects.filter(created_at__gte=since, created_at__lt=until)
    return rows.filter(**given)


def _names(rows: Sequence[Any]) -> list[dict[str, Any]]:
    names = owners_of(EVERYTHING, [row.scope for row in rows])
    return [
        {
            "whose": names[row.scope],
            "project": row.project_name,
            "organization": row.organization_name,
            "shadow": row.is_shadow,
        }
        for row in rows
    ]
