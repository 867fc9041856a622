"""The dates at which a key expires or its rotation is due."""

from datetime import datetime

from django.db.models import QuerySet

from vinery_accounts.models import ApiKey, KeyEvent, KeyReminder


def active_keys() -> QuerySet[ApiKey]:
    """Return keys that only their dates can end: neither revoked nor rotated, with an active
    owner, project and organisation. Paused keys are included, because they can be resumed."""
    return ApiKey.objects.filter(
        revoked_at=None,
        replaced_by=None,
        owner__is_active=True,
        project__is_active=True,
        project__organization__is_active=True,
    )


def dates_of(key: ApiKey) -> dict[KeyEvent, datetime]:
    moments = {KeyEvent.EXPIRES: key.expires_at, KeyEvent.ROTATION: key.rotation_due_at}
    return {event: moment for event, moment in moments.items() if moment is not None}


def holds(reminder: KeyReminder) -> bool:
    """Whether the key still has the date that the reminder announces."""
    key = active_keys().filter(pk=reminder.key_id).first()
    moment = None if key is None else dates_of(key).get(KeyEvent(reminder.event))
    return moment == reminder.happens_at
