"""Webhooks in Django's admin."""

import re

import pytest
from django.test import Client
from pages import page, sent

from vinery_accounts.access import changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.models import AuditEntry, Webhook

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


def test_a_secret_is_rotated_and_shown_once(client: Client) -> None:
    webhook, old = webhooks.make("pager", URL)
    changes.add(webhook)

    text = sent(client, WEBHOOKS, {"action": "rotate", "_selected_action": webhook.pk})

    [new] = re.findall(SECRET, text)
    assert new != old
    assert "whsec_" not in page(client, WEBHOOKS)
    webhook.refresh_from_db()
    assert webhook.previous_secret_until is not None
    entries = AuditEntry.objects.filter(action="webhook.rotate", actor="root")
    assert entries.filter(target_id=str(webhook.pk)).count() == 1
