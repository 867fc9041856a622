"""`vinery project`: what keys are made for, and what is counted together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vinery.cli.places import add_changes
from vinery.cli.shape import (
    Commands,
    Failure,
    add_json,
    print_rows,
    refusals,
    say,
    start_django,
)

if TYPE_CHECKING:
    from accounts.models import Project


def add_to(commands: Commands) -> None:
    """Add `vinery project` and what is under it."""
    project = commands.add_parser("project", help="make, list, switch and remove projects")
    actions = project.add_subparsers(title="commands", metavar="COMMAND", required=True)
    make = actions.add_parser("create", help="make one", description="Make a project.")
    make.add_argument("name", metavar="NAME", help="its name, once in its organisation")
    make.add_argument(
        "--organization", metavar="NAME", help="where it belongs (default: the first one)"
    )
    make.set_defaults(run=create)
    show = actions.add_parser("list", help="list all", description="List projects by name.")
    show.add_argument("--organization", metavar="NAME", help="only those of this one")
    add_json(show)
    show.set_defaults(run=list_projects)
    _add_change(actions)
    add_changes(
        actions,
        "a project",
        _find,
        goes_along="roles, limits and kept texts",
        holds="keys, revoked ones, too,",
    )


def _add_change(actions: Commands) -> None:
    change = actions.add_parser(
        "change",
        help="say what is kept of its requests' texts",
        description="Say for how long requests and answers of a project are kept, encrypted, and "
        "what is blacked out of them. What is not named stays as it is.",
    )
    change.add_argument("name", metavar="NAME", help="its name")
    change.add_argument(
        "--capture-hours",
        type=int,
        metavar="N",
        help="for how long, up to 720; 0 keeps nothing, and deletes what was kept",
    )
    redactions = change.add_mutually_exclusive_group()
    redactions.add_argument(
        "--redact",
        action="append",
        metavar="RULE",
        help="black this out: email, card, phone, ip or secret, or any words as they are; may be "
        "given several times, and takes the place of all that were there",
    )
    redactions.add_argument("--no-redact", action="store_true", help="black nothing out")
    change.set_defaults(run=change_project)


def create(arguments: argparse.Namespace) -> int:
    """Make a project. Raises `Failure`."""
    start_django()
    from accounts.models import Project
    from accounts.services import changes
    from accounts.services.changes import first_project
    from vinery.cli.find import organization_named

    named = arguments.organization
    with refusals():
        place = organization_named(named) if named else first_project().organization
        project = changes.add(Project(organization=place, name=arguments.name))
    say(f"{project} is made.")
    return 0


def change_project(arguments: argparse.Namespace) -> int:
    """Change what is named. Raises `Failure`."""
    start_django()
    from accounts.services import changes

    redactions = [] if arguments.no_redact else arguments.redact
    asked = {"capture_hours": arguments.capture_hours, "capture_redactions": redactions}
    values = {name: value for name, value in asked.items() if value is not None}
    if not values:
        raise Failure("Say what to change. See: vinery project change --help")
    with refusals():
        project = changes.change(_find(arguments.name), **values)
    hours, rules = project.capture_hours, ", ".join(project.capture_redactions)
    kept = f"keeps texts for {hours} hours" if hours else "keeps no texts"
    say(f"{project} {kept}; blacked out: {rules or 'nothing'}.")
    return 0


def list_projects(arguments: argparse.Namespace) -> int:
    """Print projects."""
    start_django()
    from django.db.models import Count

    from accounts.models import Project
    from vinery.cli.find import organization_named

    projects = Project.objects.select_related("organization")
    if arguments.organization:
        projects = projects.filter(organization=organization_named(arguments.organization))
    rows = [
        {
            "id": each.pk,
            "organization": each.organization.name,
            "name": each.name,
            "active": each.is_active,
            "keys": each.num_keys,
            "capture_hours": each.capture_hours,
            "created": each.created_at,
        }
        for each in projects.annotate(num_keys=Count("api_keys"))
    ]
    heads = ("id", "organization", "name", "active", "keys", "capture_hours", "created")
    print_rows(rows, heads, as_json=arguments.json)
    return 0


def _find(name: str) -> Project:
    from vinery.cli.find import project_named

    return project_named(name)
