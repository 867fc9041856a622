"""Reminders of keys that expire soon.

Each is sent once for each expiry, a chosen number of days before it, to the right users.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import openai
import pytest
from django.core import mail
from hypothesis import given
from hypothesis import strategies as st
from together import four_at_once
from usage_builders import NOON
from webhook_receiver import Receiver

from tests.tables import table
from vinery_accounts import tasks
from vinery_accounts.alerts import deliveries, reminders, webhooks
from vinery_accounts.keys import lifecycle as keys
from vinery_accounts.models import (
    ApiKey,
    Delivery,
    DeliveryState,
    KeyReminder,
    Organization,
    Project,
    Role,
    User,
)
from vinery_accounts.services import changes

DAYS = (1, 7)
DAY = timedelta(days=1)
END = NOON + 90 * DAY


@pytest.fixture
def olga(acme: Organization) -> User:
    """Return the owner of the keys, who has no admin role."""
    return person("olga", acme, Role.MEMBER)


def person(name: str, scope: Organization | Project, role: Role, **more: Any) -> User:
    user = User.objects.create_user(name, **{"email": f"{name}@example.com", **more})
    changes.set_role(user, scope, role)
    return user


def key_of(
    owner: User, project: Project, *, created: datetime = NOON, ends: datetime | None = END
) -> ApiKey:
    key = keys.create_key(owner=owner, project=project, name="crawler", expires_at=ends).key
    ApiKey.objects.filter(pk=key.pk).update(created_at=created)
    key.refresh_from_db()
    return key


def check(at: datetime, days: tuple[int, ...] = DAYS) -> list[int]:
    return [each.days_before for each in reminders.check_keys(at, days, has_email=True)]


def readers() -> set[str]:
    return {each.receiver.split()[-1] for each in Delivery.objects.all()}


def test_reminders_are_sent_a_week_and_a_day_before_once(olga: User, search: Project) -> None:
    key_of(olga, search)

    assert check(END - 7 * DAY - timedelta(seconds=1)) == []
    assert check(END - 7 * DAY) == [7]
    assert check(END - 7 * DAY) == []
    assert check(END - DAY - timedelta(seconds=1)) == []
    assert check(END - DAY) == [1]
    assert check(END - timedelta(seconds=1)) == []
    assert check(END) == []


def test_a_late_reminder_is_sent_with_the_smallest_of_the_days(olga: User, search: Project) -> None:
    key_of(olga, search)

    assert check(END - DAY, days=()) == []
    assert check(END - 29 * DAY, days=(3, 30)) == [30]
    assert check(END - timedelta(hours=2)) == [1]
    assert check(END - timedelta(hours=1)) == []
    assert KeyReminder.objects.count() == 2


@table(
    "life, days_sent",
    [(timedelta(hours=20), []), (DAY, []), (3 * DAY, [1]), (7 * DAY, [1]), (8 * DAY, [7, 1])],
)
def test_a_key_with_a_short_life_has_no_reminder(
    olga: User, search: Project, life: timedelta, days_sent: list[int]
) -> None:
    key = key_of(olga, search, created=END - life)

    checks = [check(END - timedelta(hours=hour)) for hour in range(24 * 8, 0, -4)]

    assert [each for found in checks for each in found] == days_sent
    key.delete()


@given(
    check_times=st.lists(st.floats(0, 30), max_size=20),
    days=st.sets(st.integers(1, 20), max_size=4),
)
def test_no_reminder_is_early_or_repeated(check_times: list[float], days: set[int]) -> None:
    key = ApiKey(created_at=NOON)
    days_sent: list[int] = []
    for before in sorted(check_times, reverse=True):
        now = END - timedelta(days=before)
        lead = reminders.lead_of(key, END, sorted(days), now)
        if lead is not None and lead not in days_sent:
            assert END - now <= timedelta(days=lead)
            days_sent.append(lead)

    assert days_sent == sorted(days_sent, reverse=True)
    assert set(days_sent) <= days


def test_another_expiry_sends_a_new_reminder(olga: User, search: Project) -> None:
    key = key_of(olga, search)
    assert check(END - 7 * DAY) == [7]

    keys.change_key(key, name="spider")
    assert check(END - 7 * DAY) == []

    later = END + 30 * DAY
    keys.change_key(key, expires_at=later)
    assert check(END - DAY) == []
    assert check(later - 7 * DAY) == [7]
    assert check(later - DAY) == [1]


def test_an_invalid_key_sends_no_reminder(olga: User, search: Project, acme: Organization) -> None:
    keys.revoke_key(key_of(olga, search))
    new = keys.rotate_key(key_of(olga, search), grace=80 * DAY).key
    keys.change_key(new, expires_at=None)
    assert check(END - DAY) == []

    key_of(olga, search)
    for row in (olga, search, acme):
        changes.set_active(row, is_active=False)
        assert check(END - DAY) == []
        changes.set_active(row, is_active=True)
    assert check(END - DAY) == [1]


def test_a_paused_key_has_reminders_as_it_may_be_resumed(olga: User, search: Project) -> None:
    keys.pause_key(key_of(olga, search))

    assert check(END - DAY) == [1]
    assert Delivery.objects.count() == 1
    key_of(olga, search)
    reminders.check_keys(END - DAY, DAYS, has_email=False)
    assert KeyReminder.objects.count() == 2
    assert Delivery.objects.count() == 1  # without a mail server, no mail is sent


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_many_processes_write_each_reminder_once(olga: User, search: Project) -> None:
    key_of(olga, search)
    found = four_at_once(lambda: check(END - DAY))

    assert found == [1]
    assert Delivery.objects.count() == 1


@pytest.mark.parametrize("owner", ["service", "no address"])
def test_admins_stand_in_for_missing_addresses(
    search: Project, acme: Organization, owner: str
) -> None:
    elsewhere = changes.add(Project(organization=acme, name="elsewhere"))
    other = changes.add(Organization(name="Other"))
    for name, scope, role in (
        ("olivia", acme, Role.OWNER),
        ("adam", acme, Role.ADMIN),
        ("paul", search, Role.ADMIN),
        ("peter", elsewhere, Role.ADMIN),
        ("mia", acme, Role.MEMBER),
        ("eve", other, Role.OWNER),
    ):
        person(name, scope, role)
    person("gone", acme, Role.OWNER, is_active=False)
    person("nomail", acme, Role.OWNER, email="")
    email = "robot@example.com" if owner == "service" else ""
    robot = person("robot", search, Role.MEMBER, email=email, is_service=owner == "service")
    key_of(robot, search)

    check(END - DAY)

    assert readers() == {"olivia", "adam", "paul"}


def test_owner_and_webhooks_get_reminders(olga: User, search: Project, acme: Organization) -> None:
    person("adam", acme, Role.ADMIN)
    for name, scope in (("ours", acme), ("platform", None)):
        changes.add(webhooks.make(name, "https://hooks.example.com/", scope)[0])
    key_of(olga, search)

    check(END - DAY)

    assert readers() == {"ours", "olga"}


def test_an_e_mail_has_the_key_and_its_expiry(olga: User, search: Project, settings: Any) -> None:
    settings.VINERY_PUBLIC_URL = "https://vinery.example"
    key = key_of(olga, search)
    check(END - DAY)

    assert deliveries.deliver(Delivery.objects.get().pk, END - DAY) is DeliveryState.SENT

    [message] = mail.outbox
    assert message.to == ["olga@example.com"]
    assert message.subject == "API key crawler expires at 2026-05-30 12:00 UTC"
    assert message.body == (
        f"The API key crawler ({key.hint}) of olga, in Acme / search, expires at 2026-05-30 12:00 "
        "UTC.\n\nFrom then on requests with this key are refused, and running requests end. Rotate "
        "the key, create a new one, or change its expiry.\n\n"
        "https://vinery.example/console/keys/\n"
    )

    # A line break in a name adds no header.
    key = key_of(olga, search)
    ApiKey.objects.filter(pk=key.pk).update(name="crawler\nBcc: all@example.com")
    check(END - DAY)
    assert deliveries.deliver(Delivery.objects.latest("pk").pk, END - DAY) is DeliveryState.SENT
    assert "\n" not in mail.outbox[1].subject


def test_a_reminder_to_a_webhook_is_tried_until_the_webhook_answers(
    olga: User, search: Project, acme: Organization, receiver: Receiver
) -> None:
    webhook, secret = webhooks.make("ours", receiver.url, acme)
    changes.add(webhook)
    key = key_of(olga, search)
    check(END - 7 * DAY)
    [reminder] = KeyReminder.objects.all()
    delivery = Delivery.objects.get(webhook=webhook)
    receiver.statuses = [500, 200]
    now = END - 7 * DAY

    assert deliveries.deliver(delivery.pk, now) is DeliveryState.PENDING
    assert deliveries.deliver(delivery.pk, now + deliveries.BACKOFF[0]) is DeliveryState.SENT

    checker = openai.OpenAI(api_key="unused")
    for _, headers, body in receiver.requests:
        checker.webhooks.verify_signature(body, headers, secret=secret)
    [first, second] = [json.loads(body) for *_, body in receiver.requests]
    assert first == second
    data = {"key_id": key.pk, "name": "crawler", "hint": key.hint, "owner": "olga"}
    data |= {"project": "Acme / search", "happens_at": END.isoformat(), "days_before": 7}
    event = {"id": f"evt_key_{reminder.pk}", "type": "key.expires_soon"}
    assert first == {**event, "created_at": now.isoformat(), "data": data}


@table(
    "act",
    [
        keys.revoke_key,
        lambda key: keys.rotate_key(key, grace=DAY),
        lambda key: keys.change_key(key, expires_at=END + DAY),
        lambda key: key.delete(),
    ],
)
def test_an_outdated_reminder_is_not_sent(
    olga: User, search: Project, act: Callable[[ApiKey], object]
) -> None:
    Delivery.objects.all().delete()
    key = key_of(olga, search)
    check(END - DAY)
    act(key)

    assert deliveries.deliver(Delivery.objects.get().pk, END - DAY) is DeliveryState.FAILED

    assert mail.outbox == []
    assert "changed" in Delivery.objects.get().error
    ApiKey.objects.all().delete()


def test_tasks_check_keys_queue_deliveries_and_send_them(
    olga: User, search: Project, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VINERY_HAS_EMAIL = True
    settings.VINERY_REMIND_DAYS = [1, 7]
    now = datetime.now(UTC)
    key_of(olga, search, created=now - 30 * DAY, ends=now + 6 * DAY)
    # Messages to workers are direct calls here.
    monkeypatch.setattr(tasks.sweep_deliveries, "delay", tasks.sweep_deliveries)
    monkeypatch.setattr(tasks.deliver, "delay", tasks.deliver)

    tasks.check_keys()
    tasks.check_keys()

    assert [message.to for message in mail.outbox] == [["olga@example.com"]]
