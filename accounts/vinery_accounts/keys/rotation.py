"""Scheduled rotation of keys: when a key must be rotated, and when it expires if it was not.

Only the owner can rotate a key, because its new secret is shown once. A key must be rotated
`rotate_every_days` after its creation. With `rotation_grace_days` it expires that many days later;
a rotation creates a new key whose days begin anew. Authentication only checks `expires_at`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError

from vinery_accounts.models import ApiKey

_DAYS: Final = ("rotate_every_days", "rotation_grace_days")


def expiry_of_new(values: Mapping[str, Any], now: datetime) -> datetime | None:
    """The `expires_at` of a key that is created now with these values.

    Raises `ValidationError` for invalid days, and for both days of grace and an expiry.
    """
    expiry = _expiry(values, now)
    expires_at: datetime | None = values.get("expires_at")
    if expiry is not None and expires_at is not None:
        raise _two_expiries()
    return expiry or expires_at


def with_expiry(stored: ApiKey, values: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The new values of a key, with the `expires_at` that follows from them.

    Raises `ValidationError` for invalid days, for both days of grace and an expiry, and for a key
    that would expire at once.
    """
    before = {name: getattr(stored, name) for name in _DAYS}
    after = before | {name: values[name] for name in _DAYS if name in values}
    if stored.replaced_by_id is not None or (after == before and "expires_at" not in values):
        return dict(values)
    old_expiry, new_expiry = _expiry(before, stored.created_at), _expiry(after, stored.created_at)
    wanted = values.get("expires_at", stored.expires_at)
    # The stored expiry follows from the old days: the caller did not ask for it.
    if old_expiry is not None and wanted == stored.expires_at:
        wanted = None
    if new_expiry is None:
        return {**values, "expires_at": wanted}
    if wanted not in (None, new_expiry):
        raise _two_expiries()
    if new_expiry != stored.expires_at and new_expiry <= now:
        raise ValidationError(
            {"rotation_grace_days": "It would expire at once: rotate it first, or add days."}
        )
    return {**values, "expires_at": new_expiry}


def _expiry(values: Mapping[str, Any], created_at: datetime) -> datetime | None:
    """When a key created at that time expires without rotation, in whole seconds as in forms.

    None without days of grace. Raises `ValidationError` for invalid days.
    """
    draft = ApiKey(**{name: values.get(name) for name in _DAYS})
    draft.clean_fields(exclude={field.name for field in draft._meta.fields} - set(_DAYS))
    draft.clean()
    if draft.rotate_every_days is None or draft.rotation_grace_days is None:
        return None
    num_days = draft.rotate_every_days + draft.rotation_grace_days
    return (created_at + timedelta(days=num_days)).replace(microsecond=0)


def _two_expiries() -> ValidationError:
    return ValidationError(
        {
            "expires_at": "This key expires if it is not rotated in time: leave out its "
            "expiry, or its days of grace."
        }
    )
