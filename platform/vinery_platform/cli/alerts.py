"""`vinery alerts`: alerts about quotas, and their webhooks."""

import argparse
import smtplib
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.mail import send_mail

from vinery_accounts.alerts import webhooks
from vinery_accounts.models import Webhook
from vinery_accounts.resources.alerts import ALERTS, WEBHOOKS
from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli import resource
from vinery_platform.cli.find import organization_named, webhook_of
from vinery_platform.cli.period import period
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import Commands, Failure, print_line, print_note, subcommands

_FIELDS: Final = {
    "name": Option(help="what it is for"),
    "url": Option(metavar="URL", help="https://..."),
    "is_active": Option("--active", help="whether it receives alerts"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    resource.add_list(actions, ALERTS, "List the newest alerts.", has_num=True)
    test = resource.add_command(
        actions,
        "test",
        send_test,
        "Send a test to all active webhooks, to one of them, or as an e-mail.",
    )
    where = test.add_mutually_exclusive_group()
    where.add_argument("--webhook", type=int, metavar="ID", help="from `alerts webhooks`")
    where.add_argument("--email", metavar="ADDRESS", help="to this address")
    _add_webhooks(actions)


def _add_webhooks(actions: Commands) -> None:
    resource.add_list(actions, WEBHOOKS, "List webhooks.", name="webhooks")
    add = resource.add_command(
        actions,
        "add-webhook",
        add_webhook,
        "Add a webhook, and print its secret once.",
        description="Add a webhook that receives alerts of an organisation's limits, or of those "
        "of the platform and of models. Its secret is printed once.",
    )
    add.add_argument("name", metavar="NAME", help="what it is for")
    add.add_argument("url", metavar="URL", help="https://...")
    add.add_argument("--organization", metavar="NAME", help="default: the platform")
    one = RowCommands(actions, WEBHOOKS, webhook_of, "id", "ID", "from `alerts webhooks`", int)
    one.add_change(
        "Change a webhook. Options that are not given keep their values.",
        _FIELDS,
        name="change-webhook",
        run=change_webhook,
    )
    rotate = one.add("rotate-webhook", rotate_webhook, WEBHOOKS.action("rotate").help)
    rotate.add_argument(
        "--grace",
        type=_grace,
        metavar="PERIOD",
        help="how long the old secret signs, too, like 30m, 12h or 7d, at most 30d; none for a "
        "leaked secret (default: 1d)",
    )
    one.add_remove("Remove a webhook.", name="remove-webhook")


def send_test(arguments: argparse.Namespace) -> int | str:
    """Print for each receiver whether a test was delivered. Raises `Failure` if one was not."""
    if arguments.email:
        return _test_mail(arguments.email)
    active = Webhook.objects.filter(is_active=True)
    receivers = [webhook_of(arguments.webhook)] if arguments.webhook else list(active)
    if not receivers:
        raise Failure("There is no active webhook. Add one: vinery alerts add-webhook")
    test = partial(WEBHOOKS.act, EVERYTHING, WEBHOOKS.action("test"))
    errors: list[Any] = [test(webhook)["error"] for webhook in receivers]
    for webhook, error in zip(receivers, errors, strict=True):
        print_line(f"{webhook}: {error or 'delivered.'}")
    if num_failed := sum(map(bool, errors)):
        raise Failure(f"The test was not delivered to {num_failed} of {len(receivers)} webhooks.")
    return 0


def _test_mail(address: str) -> str:
    if not settings.VINERY_HAS_EMAIL:
        raise Failure("There is no mail server. Set VINERY_EMAIL_URL.")
    text = "Alerts of quotas reach this address.\n"
    try:
        send_mail("A test of Vinery's alerts", text, settings.DEFAULT_FROM_EMAIL, [address])
    except (OSError, smtplib.SMTPException) as error:
        raise Failure(f"The mail server refused the test: {error}.") from error
    return f"Sent to {address}."


def add_webhook(arguments: argparse.Namespace) -> str:
    """Create a webhook. Returns its secret. Raises `Failure`."""
    name = arguments.organization
    organization = organization_named(name) if name else None
    values = {"name": arguments.name, "url": arguments.url, "organization": organization}
    new = WEBHOOKS.create(EVERYTHING, values)
    print_line(f"Webhook {new.row.pk}: {new.row}. Keep its secret, it is not shown again:")
    return new.secret


def change_webhook(webhook: Webhook, arguments: argparse.Namespace) -> str:
    webhook = WEBHOOKS.change(EVERYTHING, webhook, resource.values_of(arguments))
    return f"Webhook {webhook.pk}: {webhook}, {webhook.url}."


def rotate_webhook(webhook: Webhook, arguments: argparse.Namespace) -> str:
    """Rotate a secret. Returns the new one alone, for scripts. Raises `Failure`."""
    grace = webhooks.USUAL_GRACE if arguments.grace is None else arguments.grace
    if grace > webhooks.MAX_GRACE:
        raise Failure(f"The old secret may be valid for {webhooks.MAX_GRACE.days} days at most.")
    rotate = WEBHOOKS.action("rotate")
    new = WEBHOOKS.act(EVERYTHING, rotate, webhook, grace_s=grace.total_seconds())
    print_note(f"The new secret of webhook {webhook.pk}. It is not shown again:")
    return str(new.secret)


def _grace(text: str) -> timedelta:
    return timedelta(0) if text == "none" else period(text)
