"""Projects, webhooks, alerts and the audit log in the console, for owners and admins."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from unittest.mock import Mock

import pytest
from api.api_client import Tenant, make_tenant
from django.test import Client
from django.utils import timezone
from pages import limit_of, page, sent, signed_in
from row_builders import captured, stored_alert

from vinery_accounts.access import audit, changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.webhooks import NotDelivered
from vinery_accounts.alerts.webhooks import make as make_webhook
from vinery_accounts.base.actors import Actor
from vinery_accounts.captures.store import store_captured
from vinery_accounts.models import (
    AuditEntry,
    Capture,
    Delivery,
    Organization,
    Project,
    Role,
    User,
    Webhook,
)

pytestmark = pytest.mark.django_db

PROJECTS, WEBHOOKS = "/console/projects/", "/console/webhooks/"
ALERTS, AUDIT = "/console/alerts/", "/console/audit/"
URL = "https://hooks.ours.example/"


@pytest.fixture
def client(owner: User) -> Client:
    """A client of alice, the owner of ours."""
    return signed_in(owner)


@pytest.fixture
def address(ours: Tenant) -> str:
    """The address of the first project."""
    return f"{PROJECTS}{ours.one.pk}/"


def webhook_of(organization: Organization) -> Webhook:
    return changes.add(make_webhook("pager", URL, organization)[0])


def failed_delivery(webhook: Webhook, organization_id: int) -> Delivery:
    alert = stored_alert(organization_id=organization_id, whose="ours one")
    state = {"state": "failed", "num_tries": 7, "error": "The receiver answered 500."}
    return Delivery.objects.create(alert=alert, webhook=webhook, due_at=timezone.now(), **state)


def test_an_organisation_leads_to_what_is_in_it(ours: Tenant, root: User) -> None:
    stranger = make_tenant("theirs")
    changes.set_role(root, stranger.one, Role.MEMBER)
    number = ours.organization.pk
    client = signed_in(root)
    text = page(client, f"/console/organizations/{number}/")
    for address in ("projects/", "members/", "keys/"):
        assert f'href="/console/{address}?organization={number}"' in text
        found = page(client, f"/console/{address}?organization={number}")
        table = found.partition("<tbody>")[2]
        assert "theirs" not in table
    assert f'href="/console/limits/new/?of=organization:{number}"' in text
    assert "ours one" in page(client, f"{PROJECTS}?organization={number}")


def test_a_webhook_is_created_tested_tried_again_and_rotated(
    client: Client, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, own = f"{WEBHOOKS}new/", {"organization": ours.organization.pk, "name": "pager"}
    of_platform = own | {"organization": "", "url": URL}
    assert "This field is required." in sent(client, new, of_platform)
    assert not Webhook.objects.exists()

    text = sent(client, new, own | {"url": f"{URL}vinery"})

    secret = re.search(r'<pre id="secret">(whsec_.*?)</pre>', text)
    assert secret is not None
    webhook = Webhook.objects.get()
    assert webhook.organization == ours.organization
    address = f"{WEBHOOKS}{webhook.pk}/"
    assert secret[1] not in page(client, address)

    refused = Mock(side_effect=NotDelivered("The receiver answered 404."))
    monkeypatch.setattr(webhooks, "send", refused)
    failed = "delivered: no; error: The receiver answered 404."
    assert failed in sent(client, f"{address}test/")

    delivery = failed_delivery(webhook, ours.organization.pk)
    for shown in (address, WEBHOOKS):
        assert "The receiver answered 500." in page(client, shown)
    assert "Retry: messages: 1" in sent(client, f"{address}retry/")
    delivery.refresh_from_db()
    assert (delivery.state, delivery.num_tries) == ("pending", 0)

    assert "whsec_" in sent(client, f"{address}rotate/", {"grace": "3600"})
    webhook.refresh_from_db()
    assert webhook.previous_secret_until is not None
    assert webhook.previous_secret_until > timezone.now() + timedelta(minutes=59)


def test_alerts_are_shown_with_receivers_and_the_page_warns_while_they_reach_no_one(
    client: Client, owner: User, ours: Tenant, settings: Any
) -> None:
    warning = "Alerts are only shown here."
    settings.VINERY_HAS_EMAIL = False
    assert warning in page(client, ALERTS)
    webhook = webhook_of(ours.organization)
    assert warning not in page(client, ALERTS)
    changes.change(webhook, is_active=False)
    assert warning in page(client, ALERTS)

    settings.VINERY_HAS_EMAIL = True
    assert warning in page(client, ALERTS)
    changes.change(owner, email="alice@ours.example")

    text = page(client, ALERTS)
    assert warning not in text
    assert "alice@ours.example" in text

    failed_delivery(webhook, ours.organization.pk)

    text = page(client, ALERTS)
    for shown in ("ours one", "webhook pager: failed", "The receiver answered 500."):
        assert shown in text


def test_the_menu_counts_the_limits_whose_alerts_still_hold(
    client: Client, owner: User, ours: Tenant
) -> None:
    limit = limit_of(owner, "tokens", "day", 100)
    now, day = timezone.now(), timedelta(days=1)
    about = {"limit_id": limit.pk, "organization_id": ours.organization.pk, "amount": 100}
    for percent in (50, 80):
        stored_alert(**about, percent=percent, resets_at=now + day)
    stored_alert(**about, window_start=now - day, resets_at=now)
    stored_alert(**about | {"limit_id": limit.pk + 1}, resets_at=now + day)

    assert ">1 open</span>" in page(client, "/console/")
    changes.change(limit, amount=200)
    assert " open</span>" not in page(client, "/console/")


def test_the_log_has_pages_and_is_filtered_by_actor_action_and_day(
    client: Client, owner: User, ours: Tenant, address: str
) -> None:
    audit.record("sign_in", owner, by=Actor(owner.pk, "alice"))
    client.post(address, {"name": "renamed", "capture_hours": "0", "max_stored_mb": "1"})
    client.post(f"{PROJECTS}{ours.two.pk}/deactivate/")

    both = ["project.deactivate", "project.update"]
    for query, actions in {
        "actor=alice": [*both, "user.sign_in"],
        "action=project.update": ["project.update"],
        "search=renamed": ["project.update"],
        "from=2999-01-01T00:00": [],
        "actor=alice&to=2999-01-01T00:00&without_sign_ins=on": both,
    }.items():
        text = page(client, f"{AUDIT}?{query}")
        assert re.findall('"Action">(.*?)<', text) == actions, query
    assert "Nothing matches." in page(client, f"{AUDIT}?action=none")
    listed = page(client, f"{AUDIT}?action=project.update")
    assert "vinery audit verify" in listed
    assert "name" in re.findall('"Changed">(.*?)<', listed)[0].split(", ")
    entry, *_ = re.findall(rf'href="({AUDIT}\d+/)"', listed)
    assert "name: ours one" in page(client, entry) and "name: renamed" in page(client, entry)

    for number in range(59):
        changes.change(ours.one, name=f"name {number}")

    first = page(client, f"{AUDIT}?action=project.update")
    assert first.count("<tr>") == 51
    assert 'rel="next" href="?action=project.update&amp;page=2"' in first
    second = page(client, f"{AUDIT}?action=project.update&page=2")
    assert second.count("<tr>") == 11 and 'rel="prev"' in second


def test_leaders_read_captured_texts_and_each_reading_is_audited(
    client: Client, ours: Tenant
) -> None:
    Project.objects.update(capture_hours=1)
    assert store_captured([captured(ours.one, "req_1", b'{"model": "tiny-chat"}')])
    address = f"/console/captures/{Capture.objects.get().pk}/"

    assert "req_1" in page(client, "/console/captures/")
    assert '{\n  "model": "tiny-chat"\n}' in unescape(page(client, address))
    assert AuditEntry.objects.latest("number").action == "capture.read"
    Capture.objects.update(encrypted_texts=b"damaged")
    assert 'class="message error"' in page(client, address)
    member = signed_in(ours.user("member", Role.MEMBER))
    assert {member.get(each).status_code for each in ("/console/captures/", address)} == {403}
