"""The delivery of an alert is tried again until it arrives or is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alert_builders import USUAL, check, person, tokens_a_day, use
from django.core import mail
from usage_builders import NOON
from webhook_receiver import Receiver, receiving

from vinery_accounts import tasks
from vinery_accounts.alerts import deliveries, thresholds, webhooks
from vinery_accounts.models import Alert, Delivery, DeliveryState, Organization, Project, Role
from vinery_accounts.outbound.addresses import read_networks
from vinery_accounts.services import changes


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.0/8"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def due(
    search: Project, acme: Organization, receiver: Receiver
) -> Callable[[], tuple[Delivery, str]]:
    """Return a function that creates an alert for the receiver's webhook."""

    def make() -> tuple[Delivery, str]:
        webhook, secret = webhooks.make("ours", receiver.url, acme)
        changes.add(webhook)
        tokens_a_day(search)
        use(500, search)
        check()
        return Delivery.objects.get(), secret

    return make


def test_a_message_is_sent_once(due: Any, receiver: Receiver) -> None:
    delivery, _ = due()

    assert deliveries.due_ids(NOON) == [delivery.pk]
    assert deliveries.deliver(delivery.pk, NOON) is DeliveryState.SENT
    assert deliveries.deliver(delivery.pk, NOON + timedelta(days=1)) is None

    assert deliveries.due_ids(NOON + timedelta(days=1)) == []
    assert len(receiver.requests) == 1


def test_a_failed_delivery_is_tried_again_later_and_given_up_in_the_end(
    due: Any, receiver: Receiver
) -> None:
    delivery, _ = due()
    receiver.statuses = [500]
    now, waits = NOON, []

    while deliveries.deliver(delivery.pk, now) is DeliveryState.PENDING:
        delivery.refresh_from_db()
        assert delivery.error == "The receiver answered 500."
        waits.append(delivery.due_at - now)
        assert deliveries.deliver(delivery.pk, delivery.due_at - timedelta(seconds=1)) is None
        now = delivery.due_at

    assert tuple(waits) == deliveries.BACKOFF == tuple(sorted(waits))
    delivery.refresh_from_db()
    assert (delivery.state, delivery.num_tries) == (DeliveryState.FAILED, len(waits) + 1)
    assert len(receiver.requests) == len(waits) + 1
    assert {headers["webhook-id"] for _, headers, _ in receiver.requests} == {
        f"evt_alert_{delivery.alert_id}"
    }


def test_a_successful_retry_ends_the_delivery(due: Any, receiver: Receiver) -> None:
    delivery, _ = due()
    receiver.statuses = [503, 200]

    assert deliveries.deliver(delivery.pk, NOON) is DeliveryState.PENDING
    later = NOON + deliveries.BACKOFF[0]
    assert deliveries.deliver(delivery.pk, later) is DeliveryState.SENT

    delivery.refresh_from_db()
    assert (delivery.error, delivery.sent_at) == ("", later)


def test_a_delivery_of_a_dead_worker_is_due_again(
    due: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, _ = due()

    def die(_: Delivery) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_send", die)
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk, NOON)

    assert deliveries.due_ids(NOON + deliveries.LEASE / 2) == []
    assert deliveries.due_ids(NOON + deliveries.LEASE) == [delivery.pk]
    assert deliveries.deliver(delivery.pk, NOON + deliveries.LEASE) is DeliveryState.SENT


def test_a_delivery_that_kills_its_workers_is_given_up(
    due: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, _ = due()
    now = NOON

    def die(_: Delivery) -> None:
        raise SystemExit

    monkeypatch.setattr(deliveries, "_send", die)
    for _ in range(len(deliveries.BACKOFF) + 1):
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk, now)
        now += deliveries.LEASE

    assert deliveries.deliver(delivery.pk, now) is DeliveryState.FAILED
    assert deliveries.due_ids(now + timedelta(days=9)) == []


def test_an_e_mail_contains_the_usage_and_the_forecast(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(800, search, NOON - timedelta(hours=1))
    check()

    assert deliveries.deliver(Delivery.objects.get().pk, NOON) is DeliveryState.SENT

    [message] = mail.outbox
    assert message.to == ["olga@example.com"]
    assert message.subject == "80 % of project Acme / search's tokens are used"
    assert message.body == (
        "800 of 1,000 tokens are used by project Acme / search, counted since 2026-03-01 00:00 "
        "UTC.\n\nAt this pace the quota is used up at 2026-03-01 15:00 UTC.\n\n"
        "It resets at 2026-03-02 00:00 UTC.\n"
    )


def test_a_line_break_in_a_name_adds_no_header(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    Project.objects.filter(pk=search.pk).update(name="search\nBcc: all@example.com")
    tokens_a_day(search)
    use(500, search)
    check()

    assert deliveries.deliver(Delivery.objects.get().pk, NOON) is DeliveryState.SENT
    assert "\n" not in mail.outbox[0].subject


def test_without_a_mail_server_no_mail_is_sent(search: Project, acme: Organization) -> None:
    changes.set_role(person("olga"), acme, Role.OWNER)
    tokens_a_day(search)
    use(500, search)

    thresholds.check_quotas(NOON, USUAL, has_email=False)

    assert Alert.objects.count() == 1
    assert not Delivery.objects.exists()


def test_tasks_check_quotas_queue_deliveries_and_send_them(
    search: Project, acme: Organization, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.add(webhooks.make("ours", receiver.url, acme)[0])
    tokens_a_day(search)
    use(500, search, datetime.now(UTC))
    # Messages to workers are direct calls here.
    monkeypatch.setattr(tasks.sweep_deliveries, "delay", tasks.sweep_deliveries)
    monkeypatch.setattr(tasks.deliver, "delay", tasks.deliver)

    tasks.check_quotas()
    tasks.sweep_deliveries()

    assert len(receiver.requests) == 1
    assert Delivery.objects.get().state == DeliveryState.SENT
