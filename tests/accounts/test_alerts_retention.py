"""Retention of alerts and reminders. They are deleted when they are old and no longer needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from row_builders import stored_alert
from usage_builders import NOON

from vinery_accounts import tasks
from vinery_accounts.alerts.deliveries import delete_before
from vinery_accounts.models import Alert, Delivery, KeyReminder, Limit, User

pytestmark = pytest.mark.django_db

YEAR = timedelta(days=365)
OLD = NOON - YEAR - timedelta(days=1)
YOUNG = NOON - YEAR + timedelta(days=1)


def alert(at: Any, *, resets_at: Any, limit_id: int = 999_999, percent: int = 80) -> Alert:
    window = "day" if resets_at else "none"
    return stored_alert(
        limit_id=limit_id,
        window=window,
        percent=percent,
        window_start=at,
        resets_at=resets_at,
        created_at=at,
    )


def reminder(at: Any, *, happens_at: Any) -> KeyReminder:
    return KeyReminder.objects.create(
        key_id=1,
        organization_id=1,
        event="expires",
        happens_at=happens_at,
        days_before=7,
        key_name="k",
        hint="vny_...",
        owner_name="ann",
        project_name="p",
        created_at=at,
    )


def test_old_alerts_are_deleted_with_their_deliveries() -> None:
    old = alert(OLD, resets_at=OLD + timedelta(hours=12))
    young = alert(YOUNG, resets_at=YOUNG + timedelta(hours=12))
    user = User.objects.create_user("ann")
    for each in (old, young):
        Delivery.objects.create(alert=each, user=user, due_at=each.created_at)

    assert delete_before(NOON - YEAR) == 1

    assert list(Alert.objects.all()) == [young]
    assert [delivery.alert for delivery in Delivery.objects.all()] == [young]


def test_an_alert_of_a_budget_is_kept_while_its_limit_exists() -> None:
    limit = Limit.objects.create(scope="platform", metric="tokens", window="none", amount=100)
    kept = alert(OLD, resets_at=None, limit_id=limit.pk)
    alert(OLD, resets_at=None)

    assert delete_before(NOON - YEAR) == 1
    assert list(Alert.objects.all()) == [kept]

    limit.delete()
    assert delete_before(NOON - YEAR) == 1


def test_a_reminder_is_kept_until_long_after_its_event() -> None:
    reminder(OLD, happens_at=OLD + timedelta(hours=1))
    kept = reminder(OLD, happens_at=NOON)

    assert delete_before(NOON - YEAR) == 1
    assert list(KeyReminder.objects.all()) == [kept]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_batches_of_any_size_delete_the_same_rows(batch_size: int) -> None:
    for percent in (50, 80, 100):
        alert(OLD, resets_at=OLD, percent=percent)

    assert delete_before(NOON - YEAR, batch_size=batch_size) == 3


@pytest.mark.parametrize(("days", "num_left"), [(365, 0), (0, 1)])
def test_the_worker_deletes_by_the_setting(settings: Any, days: int, num_left: int) -> None:
    settings.VINERY_RETENTION_ALERTS_DAYS = days
    long_ago = timezone.now() - 2 * YEAR
    alert(long_ago, resets_at=long_ago)

    tasks.delete_old_alerts()

    assert Alert.objects.count() == num_left


def test_the_worker_deletes_expired_sessions() -> None:
    now = timezone.now()
    for name, ends_at in (("over", now - timedelta(1)), ("open", now + timedelta(1))):
        Session.objects.create(session_key=name, session_data="", expire_date=ends_at)

    tasks.delete_expired_sessions()

    assert [session.session_key for session in Session.objects.all()] == ["open"]


def test_every_scheduled_job_exists(settings: Any) -> None:
    for job in settings.CELERY_BEAT_SCHEDULE.values():
        name = job["task"].removeprefix("vinery_accounts.tasks.")
        task: Callable[[], None] = getattr(tasks, name)
        assert task.name == job["task"]  # type: ignore[attr-defined]
