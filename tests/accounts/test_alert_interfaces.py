"""Alerts and webhooks by command and in Django's admin."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from row_builders import stored_alert, stored_reminder
from webhook_receiver import Receiver

from tests.tables import table
from vinery.cli import main
from vinery_accounts.alerts import webhooks
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Alert, AuditEntry, Delivery, Organization, Project, User, Webhook
from vinery_accounts.services import changes

Run = Callable[..., tuple[int, str, str]]
URL = "https://hooks.example.com/"
WEBHOOK = "admin:accounts_webhook"


@pytest.fixture
def run(db: None, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        status = main(words)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def alert(db: None) -> Alert:
    user = User.objects.create_user("olga", email="olga@example.com")
    alert = stored_alert(scope="project:1", whose="Acme / search", amount=1000, num_used=812)
    Delivery.objects.create(alert=alert, user=user, due_at=timezone.now())
    return alert


def test_alerts_and_reminders_of_keys_are_listed(run: Run, alert: Alert, search: Project) -> None:
    _, text, _ = run("alerts", "list")
    assert "Acme / search" in text and "e-mail to olga: pending" in text

    _, text, _ = run("alerts", "list", "--json")
    [row] = json.loads(text)
    assert (row["percent"], row["used"], row["amount"]) == (80, 812, 1000)
    for num_tries, words in ((1, "1 try"), (3, "3 tries")):
        alert.deliveries.update(num_tries=num_tries, error="connection refused")
        [row] = json.loads(run("alerts", "list", "--json")[1])
        assert row["messages"] == [f"e-mail to olga: pending after {words} (connection refused)"]

    olga = User.objects.get(username="olga")
    keys = [create_key(owner=olga, project=search, name=name).key for name in ("ci", "crawler")]
    for key in keys:
        reminder = stored_reminder(key)
        Delivery.objects.create(reminder=reminder, user=olga, due_at=timezone.now())

    _, text, _ = run("alerts", "reminders")
    assert "crawler" in text and "ci" in text and "e-mail to olga: pending" in text

    _, text, _ = run("alerts", "reminders", "--num", "1", "--json")
    [row] = json.loads(text)
    assert (row["key"], row["event"], row["days_before"]) == ("crawler", "expires", 7)
    assert row["messages"] == ["e-mail to olga: pending"]

    _, text, _ = run("alerts", "reminders", "--key", keys[0].hint, "--json")
    assert [row["key_id"] for row in json.loads(text)] == [keys[0].pk]


def test_a_webhook_is_added_tested_removed_and_changed(run: Run, receiver: Receiver) -> None:
    changes.add(Organization(name="Acme"))
    status, text, _ = run("alerts", "add-webhook", "pager", receiver.url, "--organization", "Acme")
    assert status == 0
    assert re.search(r"^whsec_\S{44}$", text, re.M)
    webhook = Webhook.objects.get()

    assert run("alerts", "test") == (0, "pager: delivered.\n", "")
    receiver.statuses = [500]
    status, text, error = run("alerts", "test", "--webhook", str(webhook.pk))
    assert (status, text) == (1, "pager: The receiver answered 500.\n")
    assert "1 of 1" in error
    assert len(receiver.requests) == 2

    assert "Acme" in run("alerts", "webhooks")[1]
    assert run("alerts", "remove-webhook", str(webhook.pk))[0] == 0
    assert not Webhook.objects.exists()
    acts = AuditEntry.objects.filter(target_kind="webhook").order_by("number")
    assert [entry.action for entry in acts] == ["webhook.create", "webhook.delete"]

    run("alerts", "add-webhook", "pager", URL)
    webhook = Webhook.objects.get()
    for command in ("change-webhook", "rotate-webhook", "remove-webhook"):
        with pytest.raises(SystemExit, match="2"):
            run("alerts", command, "pager")  # no id

    assert run("alerts", "change-webhook", str(webhook.pk), "--no-active")[0] == 0
    assert run("alerts", "change-webhook", str(webhook.pk), "--name", "phone")[0] == 0

    webhook.refresh_from_db()
    assert (webhook.name, webhook.url, webhook.is_active) == ("phone", URL, False)
    assert run("alerts", "change-webhook", str(webhook.pk), "--url", "https://10.0.0.1/")[0] == 1


@table("words, is_kept", [((), True), (("--grace", "12h"), True), (("--grace", "none"), False)])
def test_a_secret_is_rotated_by_command(run: Run, words: tuple[str, ...], is_kept: bool) -> None:
    Webhook.objects.all().delete()
    old = run("alerts", "add-webhook", "pager", URL)[1].splitlines()[-1]
    webhook = Webhook.objects.get()

    status, new, _ = run("alerts", "rotate-webhook", str(webhook.pk), *words)

    assert status == 0
    assert re.fullmatch(r"whsec_\S{44}\n", new)
    assert new.strip() != old
    webhook.refresh_from_db()
    assert (webhook.previous_secret_until is not None) is is_kept


@table(
    "words",
    [
        ("test",),
        ("test", "--webhook", "7"),
        ("remove-webhook", "7"),
        ("change-webhook", "7", "--name", "x"),
        ("rotate-webhook", "7"),
        ("rotate-webhook", "7", "--grace", "90d"),
        ("add-webhook", "pager", "http://example.com/"),
        ("add-webhook", "pager", "https://example.com/", "--organization", "unknown"),
    ],
)
def test_a_refused_command_prints_one_line(run: Run, words: tuple[str, ...]) -> None:
    status, _, error = run("alerts", *words)

    assert status == 1
    assert error.startswith("vinery: ") and error.count("\n") == 1


def test_a_test_mail_is_sent_if_there_is_a_mail_server(run: Run, settings: Any) -> None:
    settings.VINERY_HAS_EMAIL = False
    assert "VINERY_EMAIL_URL" in run("alerts", "test", "--email", "olga@example.com")[2]

    settings.VINERY_HAS_EMAIL = True
    assert run("alerts", "test", "--email", "olga@example.com")[0] == 0
    assert mail.outbox[0].to == ["olga@example.com"]


def test_the_admin_shows_a_secret_once(client: Client, root: User) -> None:
    values = {"organization": "", "name": "pager", "url": URL, "is_active": "on"}
    page = reverse(f"{WEBHOOK}_add")
    private = client.post(page, values | {"url": "https://10.0.0.1/"}).content.decode()
    assert "not public" in private
    assert not Webhook.objects.exists()

    page_after = client.post(page, values, follow=True).content.decode()

    assert re.search(r"whsec_[A-Za-z0-9+/]{43}=", page_after)
    webhook = Webhook.objects.get()
    again = client.get(reverse(f"{WEBHOOK}_change", args=[webhook.pk]))
    assert again.status_code == 200
    assert "whsec_" not in again.content.decode()
    assert webhook.secret not in again.content.decode()
    assert AuditEntry.objects.filter(action="webhook.create").count() == 1


@table("action, is_kept", [("rotate_secrets", True), ("rotate_secrets_at_once", False)])
def test_the_admin_rotates_a_secret_and_shows_it_once(
    client: Client, root: User, action: str, is_kept: bool
) -> None:
    webhook, old = webhooks.make("pager", URL)
    changes.add(webhook)
    page = reverse(f"{WEBHOOK}_changelist")

    page_after = client.post(page, {"action": action, "_selected_action": webhook.pk}, follow=True)

    [new] = re.findall(r"whsec_[A-Za-z0-9+/]{43}=", page_after.content.decode())
    assert new != old
    assert "whsec_" not in client.get(page).content.decode()
    webhook.refresh_from_db()
    assert (webhook.previous_secret_until is not None) is is_kept
    entries = AuditEntry.objects.filter(action="webhook.rotate", actor="root")
    assert entries.filter(target_id=str(webhook.pk)).count() == 1


def test_the_admin_shows_alerts_unchangeable(client: Client, root: User, alert: Alert) -> None:
    listed = client.get(reverse("admin:accounts_alert_changelist")).content.decode()
    assert "Acme / search" in listed

    page = reverse("admin:accounts_alert_change", args=[alert.pk])
    assert "e-mail to olga" in client.get(page).content.decode()
    assert client.post(page, {"percent": 1}).status_code == 403
    assert client.get(reverse("admin:accounts_alert_add")).status_code == 403
