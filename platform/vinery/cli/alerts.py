"""`vinery alerts`: what was told of quotas and of keys, whom, and whether it arrives."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import TYPE_CHECKING

from vinery.cli.find import ids_of
from vinery.cli.key import period
from vinery.cli.shape import (
    Commands,
    Failure,
    add_json,
    add_num,
    print_rows,
    refusals,
    say,
    start_django,
)

if TYPE_CHECKING:
    from accounts.models import Alert, Delivery, KeyReminder, Webhook

_ALERTS = ("created_at", "percent", "whose", "metric", "window", "used", "amount", "told")
_REMINDERS = (
    *("created_at", "key", "hint", "owner", "project", "event", "happens_at", "days_before"),
    "told",
)
_RECEIVERS = ("deliveries__webhook", "deliveries__user")
_WEBHOOKS = ("id", "name", "organization", "url", "active")


def add_to(commands: Commands) -> None:
    """Add `vinery alerts` and what is under it."""
    alerts = commands.add_parser(
        "alerts", help="see and test alerts of quotas and keys, manage webhooks"
    )
    actions = alerts.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_lists(actions)
    _add_test(actions)
    _add_webhooks(actions)
    _add_changes_of_webhooks(actions)


def _add_lists(actions: Commands) -> None:
    show = actions.add_parser("list", help="list alerts", description="List the newest alerts.")
    add_num(show)
    add_json(show)
    show.set_defaults(run=list_alerts)
    keys = actions.add_parser(
        "reminders",
        help="list reminders of keys",
        description="List the newest reminders of keys that were about to expire or were due to be "
        "rotated.",
    )
    keys.add_argument("--key", action="append", metavar="ID_OR_HINT", help="only of this key")
    add_num(keys)
    add_json(keys)
    keys.set_defaults(run=list_reminders)


def _add_test(actions: Commands) -> None:
    test = actions.add_parser(
        "test",
        help="send a test to webhooks or to an address",
        description="Send a test to all active webhooks, to one of them, or as an e-mail.",
    )
    where = test.add_mutually_exclusive_group()
    where.add_argument("--webhook", type=int, metavar="ID", help="from `alerts webhooks`")
    where.add_argument("--email", metavar="ADDRESS", help="to this address")
    test.set_defaults(run=send_test)


def _add_webhooks(actions: Commands) -> None:
    hooks = actions.add_parser("webhooks", help="list webhooks", description="List webhooks.")
    add_json(hooks)
    hooks.set_defaults(run=list_webhooks)
    add = actions.add_parser(
        "add-webhook",
        help="add a webhook; prints its secret once",
        description="Add a webhook that is told of alerts of an organisation's limits, or of "
        "those of the platform and of models. Its secret is printed once.",
    )
    add.add_argument("name", metavar="NAME", help="what it is for")
    add.add_argument("url", metavar="URL", help="https://...")
    add.add_argument("--organization", metavar="NAME", help="default: the platform")
    add.set_defaults(run=add_webhook)


def _add_changes_of_webhooks(actions: Commands) -> None:
    change = actions.add_parser(
        "change-webhook",
        help="change a webhook",
        description="Change a webhook; what is not named stays.",
    )
    change.add_argument("id", type=int, metavar="ID", help="from `alerts webhooks`")
    change.add_argument("--name", help="what it is for")
    change.add_argument("--url", metavar="URL", help="https://...")
    change.add_argument(
        "--active", action=argparse.BooleanOptionalAction, help="whether it is told of anything"
    )
    change.set_defaults(run=change_webhook)
    rotate = actions.add_parser(
        "rotate-webhook",
        help="give a webhook a new secret; prints it once",
        description="Give a webhook a new secret, and print it once. For a time messages carry "
        "two signatures, one with each secret.",
    )
    rotate.add_argument("id", type=int, metavar="ID", help="from `alerts webhooks`")
    rotate.add_argument(
        "--grace",
        type=_grace,
        metavar="PERIOD",
        help="how long the old secret signs, too, like 30m, 12h or 7d, at most 30d; none for one "
        "that others know (default: 1d)",
    )
    rotate.set_defaults(run=rotate_webhook)
    gone = actions.add_parser(
        "remove-webhook", help="remove a webhook", description="Remove a webhook."
    )
    gone.add_argument("id", type=int, metavar="ID", help="from `alerts webhooks`")
    gone.set_defaults(run=remove_webhook)


def list_alerts(arguments: argparse.Namespace) -> int:
    """Print the newest alerts."""
    start_django()
    from accounts.models import Alert

    rows = [
        {
            "id": alert.pk,
            "created_at": alert.created_at,
            "limit_id": alert.limit_id,
            "percent": alert.percent,
            "scope": alert.scope,
            "whose": alert.whose or alert.scope,
            "metric": alert.metric,
            "window": alert.window,
            "used": alert.num_used,
            "amount": alert.amount,
            "resets_at": alert.resets_at,
            "runs_out_at": alert.runs_out_at,
            "told": _told(alert),
        }
        for alert in Alert.objects.prefetch_related(*_RECEIVERS)[: arguments.num]
    ]
    print_rows(rows, _ALERTS, as_json=arguments.json)
    return 0


def list_reminders(arguments: argparse.Namespace) -> int:
    """Print the newest reminders. Raises `Failure`."""
    start_django()
    from accounts.models import KeyReminder

    reminders = KeyReminder.objects.prefetch_related(*_RECEIVERS)
    if arguments.key:
        reminders = reminders.filter(key_id__in=ids_of("key", arguments.key))
    rows = [
        {
            "id": reminder.pk,
            "created_at": reminder.created_at,
            "key_id": reminder.key_id,
            "key": reminder.key_name,
            "hint": reminder.hint,
            "owner": reminder.owner_name,
            "project": reminder.project_name,
            "event": reminder.event,
            "happens_at": reminder.happens_at,
            "days_before": reminder.days_before,
            "told": _told(reminder),
        }
        for reminder in reminders[: arguments.num]
    ]
    print_rows(rows, _REMINDERS, as_json=arguments.json)
    return 0


def send_test(arguments: argparse.Namespace) -> int:
    """Say of each receiver whether it took a test. Raises `Failure` if one did not."""
    start_django()
    if arguments.email:
        return _test_mail(arguments.email)
    from accounts.alerts import webhooks
    from accounts.models import Webhook

    some = (
        [_webhook(arguments.webhook)]
        if arguments.webhook
        else list(Webhook.objects.filter(is_active=True))
    )
    if not some:
        raise Failure("There is no active webhook. Add one: vinery alerts add-webhook")
    num_failed = 0
    for webhook in some:
        try:
            webhooks.send(webhook, webhooks.test_event())
        except webhooks.NotDelivered as error:
            num_failed += 1
            say(f"{webhook}: {error}")
        else:
            say(f"{webhook}: delivered.")
    if num_failed:
        raise Failure(f"{num_failed} of {len(some)} webhooks did not take the test.")
    return 0


def list_webhooks(arguments: argparse.Namespace) -> int:
    """Print all webhooks."""
    start_django()
    from accounts.models import Webhook

    rows = [
        {
            "id": webhook.pk,
            "name": webhook.name,
            "organization": str(webhook.organization or ""),
            "url": webhook.url,
            "active": webhook.is_active,
            "previous_secret_until": webhook.previous_secret_until,
        }
        for webhook in Webhook.objects.select_related("organization")
    ]
    print_rows(rows, _WEBHOOKS, as_json=arguments.json)
    return 0


def add_webhook(arguments: argparse.Namespace) -> int:
    """Make a webhook and print its secret. Raises `Failure`."""
    start_django()
    from accounts.alerts import webhooks
    from accounts.services import changes
    from vinery.cli.find import organization_named

    place = organization_named(arguments.organization) if arguments.organization else None
    webhook, secret = webhooks.make(arguments.name, arguments.url, place)
    with refusals():
        changes.add(webhook)
    say(f"Webhook {webhook.pk}: {webhook}. Keep its secret, it is not shown again:")
    print(secret)
    return 0


def change_webhook(arguments: argparse.Namespace) -> int:
    """Give a webhook other values. Raises `Failure`."""
    start_django()
    from accounts.services import changes

    named = {"name": arguments.name, "url": arguments.url, "is_active": arguments.active}
    with refusals():
        webhook = changes.change(
            _webhook(arguments.id),
            **{name: value for name, value in named.items() if value is not None},
        )
    say(f"Webhook {webhook.pk}: {webhook}, {webhook.url}.")
    return 0


def rotate_webhook(arguments: argparse.Namespace) -> int:
    """Give a webhook a new secret, and print that alone, for scripts. Raises `Failure`."""
    start_django()
    from accounts.alerts import webhooks

    grace = webhooks.USUAL_GRACE if arguments.grace is None else arguments.grace
    if grace > webhooks.MAX_GRACE:
        raise Failure(f"The old secret may be good for {webhooks.MAX_GRACE.days} days at most.")
    print(webhooks.rotate(_webhook(arguments.id), grace))
    return 0


def remove_webhook(arguments: argparse.Namespace) -> int:
    """Remove a webhook. Raises `Failure`."""
    start_django()
    from accounts.services import changes

    webhook = _webhook(arguments.id)
    changes.remove(webhook)
    say(f"Removed: {webhook}.")
    return 0


def _told(subject: Alert | KeyReminder) -> list[str]:
    return [f"{each.receiver}: {each.state}{_tries(each)}" for each in subject.deliveries.all()]


def _tries(delivery: Delivery) -> str:
    """What went wrong so far."""
    if not delivery.error:
        return ""
    tries = "1 try" if delivery.num_tries == 1 else f"{delivery.num_tries} tries"
    return f" after {tries} ({delivery.error})"


def _grace(text: str) -> timedelta:
    return timedelta(0) if text == "none" else period(text)


def _webhook(webhook_id: int) -> Webhook:
    from accounts.models import Webhook

    webhook = Webhook.objects.filter(pk=webhook_id).first()
    if webhook is None:
        raise Failure(f"There is no webhook {webhook_id}. See: vinery alerts webhooks")
    return webhook


def _test_mail(address: str) -> int:
    import smtplib

    from django.conf import settings
    from django.core.mail import send_mail

    if not settings.VINERY_HAS_EMAIL:
        raise Failure("There is no mail server. Set VINERY_EMAIL_URL.")
    text = "Alerts of quotas reach this address.\n"
    try:
        send_mail("A test of Vinery's alerts", text, settings.DEFAULT_FROM_EMAIL, [address])
    except (OSError, smtplib.SMTPException) as error:
        raise Failure(f"The mail server did not take it: {error}.") from error
    say(f"Sent to {address}.")
    return 0
