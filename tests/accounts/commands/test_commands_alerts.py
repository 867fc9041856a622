"""Alerts and webhooks by command."""

import re
from typing import Any

from django.core import mail
from django.utils import timezone
from row_builders import logged, stored_alert
from webhook_receiver import Receiver

from tests.accounts.commands.conftest import Vinery
from tests.tables import table
from vinery_accounts.models import Delivery, Project, User, Webhook

URL = "https://hooks.example.com/"


def test_alerts_are_listed(vinery_: Vinery, alice: User) -> None:
    alert = stored_alert(scope="project:1", whose="Acme / search", amount=1000, num_used=812)
    Delivery.objects.create(alert=alert, user=alice, due_at=timezone.now())

    text = vinery_("alerts", "list").out
    assert "Acme / search" in text and "e-mail to alice: pending" in text

    [row] = vinery_("alerts", "list", "--json").rows
    assert (row["percent"], row["used"], row["amount"]) == (80, 812, 1000)
    for num_tries, words in ((1, "1 try"), (3, "3 tries")):
        alert.deliveries.update(num_tries=num_tries, error="connection refused")
        [row] = vinery_("alerts", "list", "--json").rows
        assert row["messages"] == [f"e-mail to alice: pending after {words} (connection refused)"]


def test_a_webhook_is_added_tested_removed_and_changed(
    vinery_: Vinery, receiver: Receiver, search: Project
) -> None:
    added = vinery_("alerts", "add-webhook", "pager", receiver.url, "--organization", "acme")
    assert added.status == 0
    assert re.search(r"^whsec_\S{44}$", added.out, re.M)
    webhook = Webhook.objects.get()

    tested = vinery_("alerts", "test")
    assert (tested.status, tested.out, tested.err) == (0, "pager: delivered.\n", "")
    receiver.statuses = [500]
    tested = vinery_("alerts", "test", "--webhook", str(webhook.pk))
    assert (tested.status, tested.out) == (1, "pager: The receiver answered 500.\n")
    assert "1 of 1" in tested.err
    assert len(receiver.requests) == 2

    assert "acme" in vinery_("alerts", "webhooks").out
    assert vinery_("alerts", "remove-webhook", str(webhook.pk)).status == 0
    assert not Webhook.objects.exists()
    assert logged(target_kind="webhook") == ["webhook.create", "webhook.delete"]

    vinery_("alerts", "add-webhook", "pager", URL)
    webhook = Webhook.objects.get()
    for command in ("change-webhook", "rotate-webhook", "remove-webhook"):
        assert "no webhook pager" in vinery_("alerts", command, "pager").err

    change = ("alerts", "change-webhook", str(webhook.pk))
    assert vinery_(*change, "--no-active").status == 0
    assert vinery_(*change, "--name", "phone").status == 0

    webhook.refresh_from_db()
    assert (webhook.name, webhook.url, webhook.is_active) == ("phone", URL, False)
    assert vinery_(*change, "--url", "https://10.0.0.1/").status == 1


@table(
    "words",
    [
        *("test", "remove-webhook 7", "rotate-webhook 7 --grace 90d"),
        "add-webhook pager http://example.com/",
        "add-webhook pager https://example.com/ --organization unknown",
    ],
)
def test_a_refused_command_prints_one_line(vinery_: Vinery, words: str) -> None:
    assert vinery_("alerts", *words.split()).refusal


def test_a_test_mail_needs_a_mail_server(vinery_: Vinery, settings: Any) -> None:
    words = ("alerts", "test", "--email", "olga@example.com")
    settings.VINERY_HAS_EMAIL = False
    assert "VINERY_EMAIL_URL" in vinery_(*words).err

    settings.VINERY_HAS_EMAIL = True
    assert vinery_(*words).status == 0
    assert mail.outbox[0].to == ["olga@example.com"]
