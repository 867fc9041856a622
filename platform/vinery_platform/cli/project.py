"""`vinery project`: keys belong to projects, and usage is added up by project."""

import argparse
from typing import Final

from django.db.models import Count

from vinery_accounts.models import Project
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.organizations import PROJECTS
from vinery_accounts.services.changes import first_project
from vinery_platform.cli import resource
from vinery_platform.cli.find import option_of, organization_named, project_named
from vinery_platform.cli.organization import activated
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import Failure, subcommands

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
    "hashes_end_users": Option(help="usage records have hashes of end users"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    make = resource.add_command(actions, "create", create, "Create a project.")
    make.add_argument("name", metavar="NAME", help="its name, unique in its organisation")
    make.add_argument(
        "--organization", metavar="NAME", help="its organisation (default: the first one)"
    )
    resource.add_list(
        actions,
        PROJECTS,
        "List projects by name.",
        {"organization": option_of("organization")},
        annotations={"num_keys": Count("api_keys")},
    )
    one = RowCommands(actions, PROJECTS, project_named)
    one.add_change(
        "Set how long texts of requests are captured, what is redacted from them, and whether end "
        "users are hashed. Captured texts are encrypted. Options that are not given keep their "
        "values.",
        _CAPTURE,
        run=change,
    )
    one.add_rename()
    one.add_actions("deactivate", "activate", done=activated)
    one.add_remove(
        "Remove a project for good, with its roles, limits and captured texts. A project with "
        "keys, revoked ones included, cannot be removed. Its usage records stay."
    )


def create(arguments: argparse.Namespace) -> str:
    name = arguments.organization
    organization = organization_named(name) if name else first_project().organization
    values = {"organization": organization, "name": arguments.name}
    return f"{PROJECTS.create(EVERYTHING, values)} is created."


def change(project: Project, arguments: argparse.Namespace) -> str:
    values = resource.values_of(arguments)
    if not values:
        raise Failure("Name what to change. See: vinery project change --help")
    project = PROJECTS.change(EVERYTHING, project, values)
    hours, rules = project.capture_hours, ", ".join(project.capture_redactions)
    captured = f"captures texts for {hours} hours" if hours else "captures no texts"
    users = "as hashes" if project.hashes_end_users else "as clients send them"
    return f"{project} {captured}; redacted: {rules or 'nothing'}; end users: {users}."
