"""`vinery organization`: the companies or teams that share this installation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vinery.cli.places import add_changes
from vinery.cli.shape import (
    Commands,
    add_json,
    print_rows,
    refusals,
    say,
    start_django,
)

if TYPE_CHECKING:
    from accounts.models import Organization


def add_to(commands: Commands) -> None:
    """Add `vinery organization` and what is under it."""
    organization = commands.add_parser(
        "organization", help="make, list, switch and remove organisations"
    )
    actions = organization.add_subparsers(title="commands", metavar="COMMAND", required=True)
    make = actions.add_parser("create", help="make one", description="Make an organisation.")
    make.add_argument("name", metavar="NAME", help="its name, which no other has")
    make.set_defaults(run=create)
    show = actions.add_parser("list", help="list all", description="List organisations by name.")
    add_json(show)
    show.set_defaults(run=list_organizations)
    add_changes(
        actions,
        "an organisation",
        _find,
        goes_along="roles, limits and webhooks",
        holds="projects",
    )


def create(arguments: argparse.Namespace) -> int:
    """Make an organisation. Raises `Failure`."""
    start_django()
    from accounts.models import Organization
    from accounts.services import changes

    with refusals():
        changes.add(Organization(name=arguments.name))
    say(f"{arguments.name} is made. Make a project in it: vinery project create")
    return 0


def list_organizations(arguments: argparse.Namespace) -> int:
    """Print all organisations."""
    start_django()
    from django.db.models import Count

    from accounts.models import Organization

    rows = [
        {
            "id": each.pk,
            "name": each.name,
            "active": each.is_active,
            "projects": each.num_projects,
            "created": each.created_at,
        }
        for each in Organization.objects.annotate(num_projects=Count("projects")).order_by("name")
    ]
    print_rows(rows, ("id", "name", "active", "projects", "created"), as_json=arguments.json)
    return 0


def _find(name: str) -> Organization:
    from vinery.cli.find import organization_named

    return organization_named(name)
