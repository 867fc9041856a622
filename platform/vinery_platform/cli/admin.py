"""`vinery admin`: a new password for an administrator, and reencryption for a new secret key."""

import argparse

from vinery_platform.cli.shape import Failure, load_django, require_home, subcommands


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    reset = actions.add_parser(
        "reset-password",
        help="give an administrator a new password",
        description="Give an administrator a new random password, and print it once.",
    )
    reset.add_argument(
        "--user", default="admin", help="the administrator's name (default: %(default)s)"
    )
    reset.set_defaults(run=reset_password)
    again = actions.add_parser(
        "reencrypt",
        aliases=["reseal"],  # its name in release 0.1
        help="encrypt stored secrets with the newest VINERY_SECRET_KEY",
        description="Encrypt the secrets of webhooks and second factors with VINERY_SECRET_KEY, "
        "so that the keys in VINERY_SECRET_KEY_FALLBACKS can be removed.",
    )
    again.set_defaults(run=reencrypt)


def reset_password(arguments: argparse.Namespace) -> int:
    """Set and print a new password, which also ends the user's sessions."""
    load_django()
    require_home()
    from vinery_accounts.models import User
    from vinery_accounts.services.changes import new_password
    from vinery_accounts.signin.factors import set_password

    admin = User.objects.filter(username=arguments.user, is_superuser=True).first()
    if admin is None:
        raise Failure(f"There is no administrator {arguments.user}.")
    password = new_password()
    set_password(admin, password)
    print(password)
    return 0


def reencrypt(_: argparse.Namespace) -> int:
    """Print how many secrets were encrypted. Raises `Failure` if some cannot be decrypted."""
    load_django()
    require_home()
    from vinery_accounts import reencryption

    result = reencryption.reencrypt()
    print(f"{result.num_done} webhooks and second factors are encrypted with VINERY_SECRET_KEY.")
    if result.num_unreadable:
        raise Failure(
            f"{result.num_unreadable} more are encrypted with a key that is not configured. Add "
            "it to VINERY_SECRET_KEY_FALLBACKS; if it is lost, rotate the webhooks without grace "
            "and turn the second factors off."
        )
    return 0
