"""`vinery admin`: what an administrator needs who cannot log in."""

from __future__ import annotations

import argparse
import secrets

from vinery.cli.shape import Commands, Failure, start_django


def add_to(commands: Commands) -> None:
    """Add `vinery admin` and what is under it."""
    admin = commands.add_parser("admin", help="help an administrator who cannot log in")
    actions = admin.add_subparsers(title="commands", metavar="COMMAND", required=True)
    reset = actions.add_parser(
        "reset-password",
        help="give an administrator a new password",
        description="Give an administrator a new random password, and print it once.",
    )
    reset.add_argument(
        "--user", default="admin", help="the administrator's name (default: %(default)s)"
    )
    reset.set_defaults(run=reset_password)


def reset_password(arguments: argparse.Namespace) -> int:
    """Set and print a new password, which also ends the person's sessions."""
    start_django()
    from accounts import changes
    from accounts.models import User

    admin = User.objects.filter(username=arguments.user, is_superuser=True).first()
    if admin is None:
        raise Failure(f"There is no administrator {arguments.user}.")
    password = secrets.token_urlsafe(15)
    changes.set_password(admin, password)
    print(password)
    return 0
