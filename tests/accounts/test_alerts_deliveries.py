"""The delivery of an alert is tried again until it arrives or is given up. Alerts are deleted when
they are old and no longer needed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import openai
import pytest
from alert_builders import check, person, tokens_a_day, use
from django.contrib.sessions.models import Session
from django.core import mail
from django.db.models import F
from django.utils import timezone
from row_builders import stored_alert
from stored_builders import set_clock
from usage_builders import NOON
from webhook_receiver import Receiver

from vinery_accounts import models, tasks
from vinery_accounts.access import changes
from vinery_accounts.alerts import deliveries, webhooks
from vinery_accounts.alerts.deliveries import delete_before
from vinery_accounts.models import Alert, Delivery, DeliveryState, Organization, Project, User

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


@pytest.fixture
def delivery(search: Project, acme: Organization, receiver: Receiver) -> Delivery:
    """The delivery of an alert to the receiver's webhook."""
    changes.add(webhooks.make("ours", receiver.url, acme)[0])
    tokens_a_day(search)
    use(500, search)
    check()
    return Delivery.objects.get()


def pass_time(time: timedelta) -> None:
    """A second more, because SQLite compares texts of milliseconds and microseconds."""
    Delivery.objects.update(due_at=F("due_at") - time - timedelta(seconds=1))


def test_a_failed_delivery_is_retried_and_given_up(delivery: Delivery, receiver: Receiver) -> None:
    receiver.statuses = [500]
    num_tries = len(deliveries.BACKOFF) + 1

    for wait in deliveries.BACKOFF:
        assert deliveries.deliver(delivery.pk) is DeliveryState.PENDING
        delivery.refresh_from_db()
        assert delivery.error == "The receiver answered 500."
        pass_time(wait / 2)
        assert deliveries.deliver(delivery.pk) is None
        pass_time(wait / 2)

    assert deliveries.deliver(delivery.pk) is DeliveryState.FAILED
    delivery.refresh_from_db()
    assert (delivery.state, delivery.num_tries) == (DeliveryState.FAILED, num_tries)
    assert len(receiver.requests) == num_tries
    ids = {headers["webhook-id"] for _, headers, _ in receiver.requests}
    assert ids == {f"evt_alert_{delivery.alert_id}"}


def die(_: Delivery) -> None:
    raise SystemExit


def test_a_message_is_sent_once_although_its_worker_dies_before(
    delivery: Delivery, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deliveries.due_ids() == [delivery.pk]
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_send", die)
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk)

    assert deliveries.due_ids() == []
    pass_time(deliveries.LEASE)
    assert deliveries.due_ids() == [delivery.pk]
    assert deliveries.deliver(delivery.pk) is DeliveryState.SENT
    pass_time(timedelta(days=1))
    assert deliveries.deliver(delivery.pk) is None
    assert deliveries.due_ids() == []
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("shifts_s", [(-600, 0), (0, 600)])
def test_a_lease_holds_also_between_hosts_with_different_clocks(
    delivery: Delivery,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    shifts_s: tuple[int, int],
) -> None:
    def set_clocks(shift_s: int) -> None:
        for module in (tasks, timezone):
            set_clock(monkeypatch, module, shift_s)

    set_clocks(shifts_s[0])
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_send", die)
        with pytest.raises(SystemExit):
            tasks.deliver(delivery.pk)

    set_clocks(shifts_s[1])
    tasks.deliver(delivery.pk)
    assert not receiver.requests


def test_a_delivery_that_kills_its_workers_is_given_up(
    delivery: Delivery, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "_send", die)
    for _ in range(len(deliveries.BACKOFF) + 1):
        with pytest.raises(SystemExit):
            deliveries.deliver(delivery.pk)
        pass_time(deliveries.LEASE)

    assert deliveries.deliver(delivery.pk) is DeliveryState.FAILED
    pass_time(timedelta(days=9))
    assert deliveries.due_ids() == []


@pytest.fixture
def olga(acme: Organization) -> User:
    """The organisation's owner."""
    olga = person("olga")
    changes.set_role(olga, acme, models.Role.OWNER)
    return olga


def test_an_e_mail_contains_the_usage_and_the_forecast(search: Project, olga: User) -> None:
    tokens_a_day(search)
    use(800, search, NOON - timedelta(hours=1))
    check()

    assert deliveries.deliver(Delivery.objects.get().pk) is DeliveryState.SENT

    [message] = mail.outbox
    assert message.to == ["olga@example.com"]
    assert message.subject == "80 % of project Acme / search's tokens are used"
    assert message.body == (
        "800 of 1,000 tokens are used by project Acme / search, counted since 2026-03-01 00:00 "
        "UTC.\n\nAt this pace the quota may be used up at 2026-03-01 15:00 UTC.\n\n"
        "It resets at 2026-03-02 00:00 UTC.\n"
    )

    # A line break in a name adds no header.
    Project.objects.filter(pk=search.pk).update(name="search\nBcc: all@example.com")
    use(200, search)
    check()
    assert deliveries.deliver(Delivery.objects.latest("pk").pk) is DeliveryState.SENT
    assert "\n" not in mail.outbox[1].subject


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


# -- Retention: rows are deleted when they are old and no longer needed


YEAR = timedelta(days=365)
OLD = NOON - YEAR - timedelta(days=1)
YOUNG = NOON - YEAR + timedelta(days=1)


def alert(at: Any, *, resets_at: Any, **more: Any) -> Alert:
    values = {"limit_id": 999_999, "window": "day" if resets_at else "none", **more}
    return stored_alert(window_start=at, created_at=at, resets_at=resets_at, **values)


def test_old_alerts_are_deleted_with_their_deliveries_but_those_of_budgets() -> None:
    old = alert(OLD, resets_at=OLD + timedelta(hours=12))
    young = alert(YOUNG, resets_at=YOUNG + timedelta(hours=12))
    user = User.objects.create_user("ann")
    for each in (old, young):
        Delivery.objects.create(alert=each, user=user, due_at=each.created_at)
    assert delete_before(NOON - YEAR) == 1
    assert list(Alert.objects.all()) == [young]
    assert [delivery.alert for delivery in Delivery.objects.all()] == [young]

    limit = models.Limit.objects.create(
        scope="platform", metric="tokens", window="none", amount=100
    )
    kept = alert(OLD, resets_at=None, limit_id=limit.pk)
    alert(OLD, resets_at=None)
    assert delete_before(NOON - YEAR) == 1
    assert set(Alert.objects.all()) == {young, kept}
    limit.delete()
    assert delete_before(NOON - YEAR) == 1


def test_the_worker_deletes_what_is_old(settings: Any) -> None:
    long_ago = timezone.now() - 2 * YEAR
    alert(long_ago, resets_at=long_ago)
    for days, num_left in ((0, 1), (365, 0)):
        settings.VINERY_RETENTION_ALERTS_DAYS = days
        tasks.delete_old_alerts()
        assert Alert.objects.count() == num_left
    now = timezone.now()
    for name, ends_at in (("over", now - timedelta(1)), ("open", now + timedelta(1))):
        Session.objects.create(session_key=name, session_data="", expire_date=ends_at)
    tasks.delete_expired_sessions()
    assert [session.session_key for session in Session.objects.all()] == ["open"]


def test_ends_of_background_responses_go_to_the_webhooks_that_want_them(
    search: Project, acme: Organization, receiver: Receiver
) -> None:
    hook, secret = webhooks.make("ours", receiver.url, acme, gets_responses=True)
    changes.add(hook)
    changes.add(webhooks.make("alerts alone", receiver.url, acme)[0])
    other = changes.add(Organization(name="other"))
    changes.add(webhooks.make("theirs", receiver.url, other, gets_responses=True)[0])
    platform = changes.add(webhooks.make("all", receiver.url, gets_responses=True)[0])
    receiver.statuses = [500, 204]
    kinds = ("completed", "failed", "incomplete", "cancelled")

    for status in kinds:
        deliveries.response_ended(search.pk, f"resp_{status}", status)
    queued = list(Delivery.objects.order_by("pk"))
    assert [each.webhook for each in queued] == [hook] * 4
    for each in queued:
        while deliveries.deliver(each.pk) is DeliveryState.PENDING:
            pass_time(deliveries.BACKOFF[0])

    unwrap = openai.OpenAI(api_key="unused").webhooks.unwrap
    events = [unwrap(body, headers, secret=secret) for _, headers, body in receiver.requests]
    assert [each.type for each in events[1:]] == [f"response.{kind}" for kind in kinds]
    assert events[0].id == events[1].id == receiver.requests[1][1]["webhook-id"]
    assert events[1].data.id == "resp_completed"
    assert events[1].object == "event"
    assert len({each.id for each in events}) == 4
    assert str(queued[0]) == "response.completed resp_completed to webhook ours"

    deliveries.response_ended(None, "resp_5", "completed")
    assert Delivery.objects.latest("pk").webhook == platform
    delete_before(timezone.now() + timedelta(days=1))
    assert Delivery.objects.get().state == DeliveryState.PENDING
