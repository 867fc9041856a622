"""`vinery refusals`: which requests a limit refused, cut short or would have refused, and why."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from vinery_accounts.models import LimitScope
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.owners import owners_of
from vinery_accounts.resources.refusals import REFUSALS
from vinery_accounts.usage import export
from vinery_platform.cli import resource
from vinery_platform.cli.find import FINDERS, options_of
from vinery_platform.cli.period import add_period
from vinery_platform.cli.resource import Option
from vinery_platform.cli.shape import add_file, subcommands, write_file


def _scope(text: str) -> str:
    """Return the scope. Raises what argparse turns into a usage error."""
    if text.partition(":")[0] not in LimitScope.values:
        kinds = ", ".join(LimitScope.values)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no scope: it begins with one of {kinds}, such as key:12"
        )
    return text


_FILTERS: Final = {
    **{f"{kind}_id": options_of(kind) for kind in FINDERS},
    "limit_id": Option("--limit", metavar="ID", help="only by this limit", is_list=True),
    "request_id": Option("--request", metavar="ID"),
    "model": Option(metavar="NAME"),
    "metric": Option(),
    "window": Option(),
    "is_shadow": Option("--shadow"),
    "scope": Option(parse=_scope),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    show = resource.add_list(
        actions,
        REFUSALS,
        "List the newest refusals.",
        _FILTERS,
        has_num=True,
        extra=_names,
        description="List refusals, the newest first: the limit's owner, its level, the amount "
        "that the request needed, and how long the client should have waited.",
    )
    add_period(show)
    to_file = resource.add_command(
        actions,
        "export",
        export_refusals,
        "Write refusals to a file.",
        description="Write one line for each limit that refused a request or cut it short, in "
        "order of time.",
    )
    add_period(to_file)
    resource.add_filters(to_file, REFUSALS, _FILTERS)
    add_file(to_file)


def export_refusals(arguments: argparse.Namespace) -> int:
    """Write refusals as they are read. Raises `Failure`."""
    rows = resource.filtered(REFUSALS, _FILTERS, arguments)
    texts = export.export_refusals(rows, export.Format(arguments.format))
    return write_file(arguments.output, texts)


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
