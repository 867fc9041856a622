"""Projects, webhooks, alerts and the audit log in the console, for owners and admins."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from api.api_client import Tenant, make_tenant
from django.utils import timezone
from pages import page, signed_in, text_of
from row_builders import stored_alert

from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.webhooks import NotDelivered
from vinery_accounts.alerts.webhooks import make as make_webhook
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import (
    AuditEntry,
    Delivery,
    DeliveryState,
    Organization,
    Project,
    Role,
    User,
    Webhook,
)
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db

PROJECTS, WEBHOOKS = "/console/projects/", "/console/webhooks/"
ALERTS, AUDIT = "/console/alerts/", "/console/audit/"


@pytest.fixture
def ours() -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def theirs() -> Tenant:
    return make_tenant("theirs")


@pytest.fixture
def owner(ours: Tenant, alice: User) -> User:
    changes.set_role(alice, ours.organization, Role.OWNER)
    return alice


# -- Projects


def test_a_project_is_created_renamed_and_its_prompts_are_logged(owner: User, ours: Tenant) -> None:
    client = signed_in(owner)
    values = {"organization": ours.organization.pk, "name": "search"}
    text = text_of(client.post(f"{PROJECTS}new/", values, follow=True))
    assert "The project search is created." in text
    project = Project.objects.get(name="search")

    changed = {"name": "find", "capture_hours": "24", "capture_redactions": "email, Project X"}
    text = text_of(client.post(f"{PROJECTS}{project.pk}/", changed, follow=True))

    assert "The project is changed." in text
    assert 'value="email, Project X"' in text
    project.refresh_from_db()
    assert (project.name, project.capture_hours) == ("find", 24)
    assert project.capture_redactions == ["email", "Project X"]
    assert "find</a>" in page(client, PROJECTS)
    assert 'data-name="Prompt logging">24 hours<' in page(client, PROJECTS)


def test_a_project_of_a_name_that_is_taken_is_refused_at_its_field(
    owner: User, ours: Tenant
) -> None:
    values = {"organization": ours.organization.pk, "name": ours.one.name}

    text = text_of(signed_in(owner).post(f"{PROJECTS}new/", values))

    assert "This organisation has a project of that name." in text


def test_a_project_is_deactivated_and_removed_after_a_confirmation(
    owner: User, ours: Tenant
) -> None:
    client, address = signed_in(owner), f"{PROJECTS}{ours.one.pk}/"
    assert "Deactivate ours / ours one?" in page(client, f"{address}deactivate/")
    client.post(f"{address}deactivate/")
    assert "deactivated: its keys are refused" in page(client, address)
    client.post(f"{address}activate/")
    ours.one.refresh_from_db()
    assert ours.one.is_active

    client.post(f"{address}remove/")

    assert not Project.objects.filter(pk=ours.one.pk).exists()


def test_a_project_with_keys_stays_and_the_page_gives_the_reason(owner: User, ours: Tenant) -> None:
    create_key(owner=owner, project=ours.one, name="laptop")

    text = text_of(signed_in(owner).post(f"{PROJECTS}{ours.one.pk}/remove/", follow=True))

    assert "has keys, and revoked keys count too" in text
    assert Project.objects.filter(pk=ours.one.pk).exists()


def test_an_admin_of_a_project_renames_it_and_does_not_log_prompts(
    ours: Tenant, alice: User
) -> None:
    changes.set_role(alice, ours.one, Role.ADMIN)
    client, address = signed_in(alice), f"{PROJECTS}{ours.one.pk}/"
    assert "capture_hours" not in page(client, address)

    client.post(address, {"name": "renamed", "capture_hours": "24"})

    ours.one.refresh_from_db()
    assert (ours.one.name, ours.one.capture_hours) == ("renamed", 0)
    assert client.get(f"{PROJECTS}new/").status_code == 403
    assert client.get(f"{PROJECTS}{ours.two.pk}/").status_code == 404


# -- Webhooks


def webhook_of(organization: Organization | None, name: str = "pager") -> Webhook:
    hook, _ = make_webhook(name, "https://hooks.ours.example/", organization)
    return changes.add(hook)


def failed_delivery(webhook: Webhook, organization_id: int) -> Delivery:
    alert = stored_alert(organization_id=organization_id, whose="ours one")
    return Delivery.objects.create(
        alert=alert,
        webhook=webhook,
        due_at=timezone.now(),
        state=DeliveryState.FAILED,
        num_tries=7,
        error="The receiver answered 500.",
    )


def test_the_secret_of_a_new_webhook_is_shown_once(owner: User, ours: Tenant) -> None:
    client = signed_in(owner)
    values = {
        "organization": ours.organization.pk,
        "name": "pager",
        "url": "https://hooks.ours.example/vinery",
    }

    text = text_of(client.post(f"{WEBHOOKS}new/", values))

    secret = re.search(r'<pre id="secret">(whsec_.*?)</pre>', text)
    assert secret is not None
    webhook = Webhook.objects.get()
    assert webhook.organization == ours.organization
    assert secret[1] not in page(client, f"{WEBHOOKS}{webhook.pk}/")


def test_an_owner_creates_no_webhook_of_the_platform_and_none_to_a_private_address(
    owner: User, ours: Tenant
) -> None:
    client = signed_in(owner)
    values = {"organization": "", "name": "pager", "url": "https://hooks.ours.example/"}
    assert "This field is required." in text_of(client.post(f"{WEBHOOKS}new/", values))

    values |= {"organization": str(ours.organization.pk), "url": "ftp://hooks.ours.example/"}
    assert "errorlist" in text_of(client.post(f"{WEBHOOKS}new/", values))

    assert not Webhook.objects.exists()


def test_a_test_reports_whether_it_was_delivered(
    owner: User, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{WEBHOOKS}{webhook_of(ours.organization).pk}/"
    client, sent = signed_in(owner), []
    monkeypatch.setattr(webhooks, "send", lambda webhook, event: sent.append(event["type"]))
    text = text_of(client.post(f"{address}test/", follow=True))
    assert "The test was delivered." in text
    assert sent == ["webhook.test"]

    def refuse(*_: Any) -> None:
        raise NotDelivered("The receiver answered 404.")

    monkeypatch.setattr(webhooks, "send", refuse)
    text = text_of(client.post(f"{address}test/", follow=True))
    assert "The test was not delivered. The receiver answered 404." in text


def test_failed_deliveries_are_listed_and_tried_again(owner: User, ours: Tenant) -> None:
    webhook, client = webhook_of(ours.organization), signed_in(owner)
    delivery = failed_delivery(webhook, ours.organization.pk)
    address = f"{WEBHOOKS}{webhook.pk}/"
    text = page(client, address)
    assert "The receiver answered 500." in text
    assert "The receiver answered 500." in page(client, WEBHOOKS)
    assert "Retry failed deliveries" in text

    text = text_of(client.post(f"{address}retry/", follow=True))

    assert "1 message will be sent again within a minute." in text
    delivery.refresh_from_db()
    assert (delivery.state, delivery.num_tries) == (DeliveryState.PENDING, 0)
    assert delivery.due_at <= timezone.now()
    assert "Retry failed deliveries" not in text


def test_a_webhook_is_changed_rotated_and_removed(owner: User, ours: Tenant) -> None:
    webhook, client = webhook_of(ours.organization), signed_in(owner)
    address = f"{WEBHOOKS}{webhook.pk}/"
    changed = {"name": "night", "url": "https://hooks.ours.example/night"}
    assert "The webhook is changed." in text_of(client.post(address, changed, follow=True))
    webhook.refresh_from_db()
    assert (webhook.name, webhook.is_active) == ("night", False)
    assert "disabled" in page(client, WEBHOOKS)

    assert "whsec_" in text_of(client.post(f"{address}rotate/", {"grace": "3600"}))
    webhook.refresh_from_db()
    assert webhook.previous_secret_until is not None
    assert webhook.previous_secret_until > timezone.now() + timedelta(minutes=59)

    assert "Remove the webhook night?" in page(client, f"{address}remove/")
    client.post(f"{address}remove/")
    assert not Webhook.objects.exists()


def test_webhooks_of_others_and_of_the_platform_are_not_found(
    owner: User, ours: Tenant, theirs: Tenant
) -> None:
    client = signed_in(owner)
    for webhook in (webhook_of(theirs.organization), webhook_of(None)):
        address = f"{WEBHOOKS}{webhook.pk}/"
        found = [
            client.get(address),
            client.post(f"{address}test/"),
            client.post(f"{address}retry/"),
        ]
        assert [each.status_code for each in found] == [404, 404, 404]
    assert "pager" not in page(client, WEBHOOKS)


# -- Alerts


def test_the_page_warns_while_alerts_reach_no_one(owner: User, ours: Tenant, settings: Any) -> None:
    client, warning = signed_in(owner), "Alerts are only shown here."
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


@pytest.mark.parametrize("who", ["admin of a project", "administrator"])
def test_the_page_names_the_readers_of_what_its_user_leads(
    ours: Tenant, alice: User, settings: Any, who: str
) -> None:
    settings.VINERY_HAS_EMAIL = True
    if who == "administrator":
        User.objects.filter(pk=alice.pk).update(is_superuser=True)
        alice.refresh_from_db()
    else:
        changes.set_role(alice, ours.one, Role.ADMIN)
    client = signed_in(alice)
    text = page(client, ALERTS)
    assert "Alerts are only shown here." in text
    # Only those who lead a whole organisation create webhooks.
    assert ("Create a webhook" in text) is (who == "administrator")

    changes.change(alice, email="alice@ours.example")

    text = page(client, ALERTS)
    assert "Alerts are only shown here." not in text
    assert "alice@ours.example" in text


def test_alerts_are_listed_with_their_receivers(owner: User, ours: Tenant, theirs: Tenant) -> None:
    failed_delivery(webhook_of(ours.organization), ours.organization.pk)
    stored_alert(limit_id=2, organization_id=theirs.organization.pk, whose="theirs one")

    text = page(signed_in(owner), ALERTS)

    assert "ours one" in text
    assert "webhook pager: failed" in text
    assert "The receiver answered 500." in text
    assert "theirs one" not in text


# -- The audit log


def test_the_log_is_filtered_by_actor_action_and_day(
    owner: User, ours: Tenant, theirs: Tenant
) -> None:
    client = signed_in(owner)
    client.post(f"{PROJECTS}{ours.one.pk}/", {"name": "renamed", "capture_hours": "0"})
    client.post(f"{PROJECTS}{ours.two.pk}/deactivate/")

    def listed(query: str = "") -> list[str]:
        return re.findall(r"<code>(\w+\.\w+)</code></td>", page(client, f"{AUDIT}?{query}"))

    assert listed("actor=alice") == ["project.deactivate", "project.update"]
    assert listed("action=project.update") == ["project.update"]
    assert listed("search=renamed") == ["project.update"]
    assert listed("since=2999-01-01") == []
    assert listed("actor=alice&until=2999-01-01") == ["project.deactivate", "project.update"]
    assert "theirs" not in page(client, AUDIT)
    assert "Enter a valid date." in page(client, f"{AUDIT}?since=x")


def test_an_entry_has_the_values_before_and_after(owner: User, ours: Tenant) -> None:
    client = signed_in(owner)
    client.post(f"{PROJECTS}{ours.one.pk}/", {"name": "renamed", "capture_hours": "0"})

    text = page(client, f"{AUDIT}?action=project.update")

    assert "<dt>name</dt><dd>ours one → renamed</dd>" in text
    assert "vinery audit verify" in text


def test_a_long_log_has_pages(owner: User, ours: Tenant) -> None:
    for number in range(60):
        changes.change(ours.one, name=f"name {number}")
    client = signed_in(owner)

    first = page(client, f"{AUDIT}?action=project.update")
    assert first.count("<tr>") == 51
    assert 'rel="next" href="?action=project.update&amp;page=2"' in first
    second = page(client, f"{AUDIT}?action=project.update&page=2")

    assert second.count("<tr>") == 11
    assert AuditEntry.objects.filter(action="project.update").count() == 60
