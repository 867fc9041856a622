"""When something becomes of a key by itself, as far as that is known."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from accounts.models import ApiKey, KeyEvent, KeyReminder


def active_keys() -> QuerySet[ApiKey]:
    """Keys that end by time alone: neither revoked nor rotated, of people and places that are
    active. A key that is paused may be resumed."""
    return ApiKey.objects.filter(
        revoked_at=None,
        replaced_by=None,
        owner__is_active=True,
        project__is_active=True,
        project__organization__is_active=True,
    )


def moments_of(key: ApiKey) -> dict[KeyEvent, datetime]:
    """What is to come, and when."""
    moments = {KeyEvent.EXPIRES: key.expires_at, KeyEvent.ROTATION: key.rotation_due_at}
    return {event: moment for event, moment in moments.items() if moment is not None}


def holds(reminder: KeyReminder) -> bool:
    """Whether it will be as it was announced."""
    key = active_keys().filter(pk=reminder.key_id).first()
    moment = None if key is None else moments_of(key).get(KeyEvent(reminder.event))
    return moment == reminder.happens_at
