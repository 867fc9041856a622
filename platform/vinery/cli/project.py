"""`vinery project`: keys belong to projects, and usage is added up by project."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from django.db.models import Count

from accounts.models import Project
from accounts.resources.organizations import PROJECTS
from accounts.services.changes import first_project
from vinery.cli import resource
from vinery.cli.find import organization_named, project_named
from vinery.cli.organization import activated
from vinery.cli.resource import Option
from vinery.cli.shape import Commands, Failure, print_line

_CAPTURE: Final = {
    "capture_hours": Option(
        metavar="N", help="for how long, up to 720; 0 captures nothing and deletes what is kept"
    ),
    "capture_redactions": Option(
        "--redact",
        metavar="RULE",
        help="redact this: email, card, phone, ip or secret, or any literal text; may be given "
        "several times, and replaces all earlier rules",
        clear="--no-redact",
    ),
}


def add_to(commands: Commands) -> None:
    """Add `vinery project` and its commands."""
    actions = resource.add_group(
        commands, "project", "create, list, deactivate and remove projects"
    )
    make = resource.add_command(actions, "create", create, "Create a project.")
    make.add_argument("name", metavar="NAME", help="its name, unique in its organisation")
    make.add_argument(
        "--organization", metavar="NAME", help="its organisation (default: the first one)"
    )
    resource.add_list(
        actions,
        PROJECTS,
        "List projects by name.",
        {"--organization": ("organization", lambda name: organization_named(name).pk)},
        extra=_num_keys,
    )
    change = resource.add_command(
        actions,
        "change",
        change_project,
        "Set how long texts of requests are captured, and what is redacted from them. Captured "
        "texts are encrypted. Options that are not given keep their values.",
    )
    change.add_argument("name", metavar="NAME", help="its name")
    resource.add_fields(change, PROJECTS, _CAPTURE, _CAPTURE)
    resource.add_rename(actions, PROJECTS, project_named)
    resource.add_actions(
        actions, PROJECTS, project_named, ("deactivate", "activate"), done=activated
    )
    resource.add_remove(
        actions,
        PROJECTS,
        project_named,
        "Remove a project for good, with its roles, limits and captured texts. A project with "
        "keys, revoked ones included, cannot be removed. Its usage records stay.",
    )


def create(arguments: argparse.Namespace) -> int:
    """Create a project. Raises `Failure`."""
    name = arguments.organization
    organization = organization_named(name) if name else first_project().organization
    project = resource.create(PROJECTS, {"organization": organization, "name": arguments.name})
    print_line(f"{project} is created.")
    return 0


def change_project(arguments: argparse.Namespace) -> int:
    """Change what a project captures. Raises `Failure`."""
    values = resource.values_of(arguments)
    if not values:
        raise Failure("Name what to change. See: vinery project change --help")
    project = resource.change(PROJECTS, project_named(arguments.name), values)
    hours, rules = project.capture_hours, ", ".join(project.capture_redactions)
    captured = f"captures texts for {hours} hours" if hours else "captures no texts"
    print_line(f"{project} {captured}; redacted: {rules or 'nothing'}.")
    return 0


def _num_keys(rows: Sequence[Project]) -> list[dict[str, int]]:
    counted = Project.objects.annotate(num_keys=Count("api_keys"))
    found = {row.pk: row.num_keys for row in counted}
    return [{"keys": found[row.pk]} for row in rows]
