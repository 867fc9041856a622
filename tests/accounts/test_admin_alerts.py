"""Alerts and webhooks in Django's admin."""

import re

import pytest
from django.test import Client
from django.utils import timezone
from pages import page, sent
from row_builders import stored_alert

from tests.tables import table
from vinery_accounts.alerts import webhooks
from vinery_accounts.models import AuditEntry, Delivery, User, Webhook
from vinery_accounts.services import changes

pytestmark = pytest.mark.usefixtures("root")

ADMIN = "/admin/accounts"
WEBHOOKS = f"{ADMIN}/webhook/"
URL = "https://hooks.example.com/"
SECRET = r"whsec_[A-Za-z0-9+/]{43}="


def test_the_secret_of_a_new_webhook_is_shown_once(client: Client) -> None:
    new, values = f"{WEBHOOKS}add/", {"name": "pager", "url": URL, "is_active": "on"}
    assert "not public" in sent(client, new, values | {"url": "https://10.0.0.1/"})
    assert not Webhook.objects.exists()

    assert re.search(SECRET, sent(client, new, values))

    webhook = Webhook.objects.get()
    again = page(client, f"{WEBHOOKS}{webhook.pk}/change/")
    assert "whsec_" not in again
    assert webhook.secret not in again
    assert AuditEntry.objects.filter(action="webhook.create").count() == 1


@table("action, is_kept", [("rotate_secrets", True), ("rotate_secrets_at_once", False)])
def test_a_secret_is_rotated_and_shown_once(client: Client, action: str, is_kept: bool) -> None:
    webhook, old = webhooks.make("pager", URL)
    changes.add(webhook)

    text = sent(client, WEBHOOKS, {"action": action, "_selected_action": webhook.pk})

    [new] = re.findall(SECRET, text)
    assert new != old
    assert "whsec_" not in page(client, WEBHOOKS)
    webhook.refresh_from_db()
    assert (webhook.previous_secret_until is not None) is is_kept
    entries = AuditEntry.objects.filter(action="webhook.rotate", actor="root")
    assert entries.filter(target_id=str(webhook.pk)).count() == 1


def test_alerts_are_only_shown(client: Client, alice: User) -> None:
    alert, rows = stored_alert(whose="Acme / search"), f"{ADMIN}/alert/"
    changes.change(alice, email="alice@example.com")
    Delivery.objects.create(alert=alert, user=alice, due_at=timezone.now())

    assert "Acme / search" in page(client, rows)
    assert "e-mail to alice" in page(client, f"{rows}{alert.pk}/change/")
    assert client.post(f"{rows}{alert.pk}/change/", {"percent": 1}).status_code == 403
    assert client.get(f"{rows}add/").status_code == 403
