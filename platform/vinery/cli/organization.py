"""`vinery organization`: the companies or teams that share this installation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from django.db.models import Count

from accounts.models import Organization
from accounts.resources.base import RowAction
from accounts.resources.organizations import ORGANIZATIONS
from vinery.cli import resource
from vinery.cli.find import organization_named
from vinery.cli.shape import Commands, print_line


def add_to(commands: Commands) -> None:
    """Add `vinery organization` and its commands."""
    actions = resource.add_group(
        commands, "organization", "create, list, deactivate and remove organisations"
    )
    make = resource.add_command(actions, "create", create, "Create an organisation.")
    make.add_argument("name", metavar="NAME", help="its name, which must be unique")
    resource.add_list(actions, ORGANIZATIONS, "List organisations by name.", extra=_num_projects)
    resource.add_rename(actions, ORGANIZATIONS, organization_named)
    resource.add_actions(
        actions, ORGANIZATIONS, organization_named, ("deactivate", "activate"), done=activated
    )
    resource.add_remove(
        actions,
        ORGANIZATIONS,
        organization_named,
        "Remove an organisation for good, with its roles, limits and webhooks. An organisation "
        "with projects cannot be removed. Its usage records stay.",
    )


def create(arguments: argparse.Namespace) -> int:
    """Create an organisation. Raises `Failure`."""
    resource.create(ORGANIZATIONS, {"name": arguments.name})
    print_line(f"{arguments.name} is created. Create a project in it: vinery project create")
    return 0


def activated(row: Any, action: RowAction) -> str:
    """Return what is printed after an activation or a deactivation."""
    return f"{row} is {action.done}{', and so are its keys' if 'de' in action.name else ''}."


def _num_projects(rows: Sequence[Organization]) -> list[dict[str, int]]:
    counted = Organization.objects.annotate(num_projects=Count("projects"))
    found = {row.pk: row.num_projects for row in counted}
    return [{"projects": found[row.pk]} for row in rows]
