"""`vinery organization`: the companies or teams that share this installation."""

import argparse
from typing import Any

from django.db.models import Count

from vinery_accounts.resources.base import EVERYTHING, RowAction
from vinery_accounts.resources.organizations import ORGANIZATIONS
from vinery_platform.cli import resource
from vinery_platform.cli.find import organization_named
from vinery_platform.cli.resource import RowCommands
from vinery_platform.cli.shape import subcommands


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    make = resource.add_command(actions, "create", create, "Create an organisation.")
    make.add_argument("name", metavar="NAME", help="its name, which must be unique")
    resource.add_list(
        actions,
        ORGANIZATIONS,
        "List organisations by name.",
        annotations={"num_projects": Count("projects")},
    )
    one = RowCommands(actions, ORGANIZATIONS, organization_named)
    one.add_rename()
    one.add_actions("deactivate", "activate", done=activated)
    one.add_remove(
        "Remove an organisation for good, with its roles, limits and webhooks. An organisation "
        "with projects cannot be removed. Its usage records stay."
    )


def create(arguments: argparse.Namespace) -> str:
    ORGANIZATIONS.create(EVERYTHING, {"name": arguments.name})
    return f"{arguments.name} is created. Create a project in it: vinery project create"


def activated(row: Any, action: RowAction) -> str:
    """Return what is printed after an activation or a deactivation."""
    return f"{row} is {action.done}{', and so are its keys' if 'de' in action.name else ''}."
