"""`vinery demo-data`: made-up usage, people and refusals, for trials."""

import argparse
from datetime import UTC, datetime
from typing import Final

from vinery_accounts.access.served import served_to
from vinery_accounts.keys.demo import has_other_usage, make_demo, remove_demo
from vinery_accounts.models import Currency
from vinery_platform.cli.shape import Failure, counted

_MOST_REQUESTS: Final = 200_000
_MOST_DAYS: Final = 366


def add_demo_data(parser: argparse.ArgumentParser) -> None:
    for name, usual, text in (
        ("days", 30, "how many days until now (default: %(default)s)"),
        ("requests", 20_000, "about how many requests (default: %(default)s)"),
        ("seed", 1, "another number makes up other usage (default: %(default)s)"),
    ):
        parser.add_argument(f"--{name}", type=counted, default=usual, metavar="N", help=text)
    parser.add_argument("--remove", action="store_true", help="remove all that was made up")
    parser.add_argument("--yes", action="store_true", help="also beside the usage of others")


def run_demo_data(arguments: argparse.Namespace) -> str:
    """Make up usage, people, prices and refusals for trials. The organisations are "Demo Acme" and
    "Demo Labs". Another run replaces them, and --remove removes them with all that belongs to them;
    only the audit log keeps its entries. Where there is no currency, EUR is set, and removed again
    unless something else has a price."""
    if arguments.remove:
        return "The demo data is removed." if remove_demo() else "There is no demo data."
    if arguments.requests > _MOST_REQUESTS or arguments.days > _MOST_DAYS:
        raise Failure(f"Ask for at most {_MOST_REQUESTS} requests and {_MOST_DAYS} days.")
    if not arguments.yes and has_other_usage():
        raise Failure("There is usage of others here. Add --yes to make up usage beside it.")
    had_currency = bool(Currency.current())
    num = make_demo(
        [model.name for model in served_to(None) if not model.is_alias],
        until=datetime.now(UTC),
        num_requests=arguments.requests,
        days=arguments.days,
        seed=arguments.seed,
    )
    code = Currency.current()
    new = "" if had_currency else ". This currency is set, because there was none"
    text = f"{num} requests are made up, and the models demo-* have prices in {code}{new}"
    return f"{text}. Remove everything with: vinery demo-data --remove"
