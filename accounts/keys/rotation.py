"""Keys that are to be rotated from time to time, and when those stop that were not.

A secret is shown once, to whoever asks for it, so no job can rotate a key for its owner. What is
scheduled is when it is due: so many days after the key was made, which is when the key before it
was rotated. Where a key has days of grace, it expires at their end; a rotation makes a new key
with new days. So whoever checks keys knows nothing but `expires_at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError

from accounts.models import ApiKey

_DAYS: Final = ("rotate_every_days", "rotation_grace_days")


def end_of_new(values: Mapping[str, Any], now: datetime) -> datetime | None:
    """The `expires_at` of a key that is made now with these values.

    Raises `ValidationError` for days that no key can have, and for two ends.
    """
    end = _end(values, now)
    expires_at: datetime | None = values.get("expires_at")
    if end is not None and expires_at is not None:
        raise _two_ends()
    return end or expires_at


def with_end(stored: ApiKey, values: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The values that a key is to be given, and the end that follows from them.

    Raises `ValidationError` for days that no key can have, for a key that would have another end
    besides, and for one that would stop at once.
    """
    before = {name: getattr(stored, name) for name in _DAYS}
    after = before | {name: values[name] for name in _DAYS if name in values}
    if stored.replaced_by_id is not None or (after == before and "expires_at" not in values):
        return dict(values)
    old_end, new_end = _end(before, stored.created_at), _end(after, stored.created_at)
    wanted = values.get("expires_at", stored.expires_at)
    # What follows from the days as they were is nobody's wish.
    if old_end is not None and wanted == stored.expires_at:
        wanted = None
    if new_end is None:
        return {**values, "expires_at": wanted}
    if wanted not in (None, new_end):
        raise _two_ends()
    if new_end != stored.expires_at and new_end <= now:
        raise ValidationError(
            {"rotation_grace_days": "It would stop at once: rotate it first, or give it more days."}
        )
    return {**values, "expires_at": new_end}


def _end(values: Mapping[str, Any], made_at: datetime) -> datetime | None:
    """When a key that was made then stops, unless it is rotated. In whole seconds, as forms have
    them. Raises `ValidationError`."""
    draft = ApiKey(**{name: values.get(name) for name in _DAYS})
    draft.clean_fields(exclude={field.name for field in draft._meta.fields} - set(_DAYS))
    draft.clean()
    if draft.rotate_every_days is None or draft.rotation_grace_days is None:
        return None
    num_days = draft.rotate_every_days + draft.rotation_grace_days
    return (made_at + timedelta(days=num_days)).replace(microsecond=0)


def _two_ends() -> ValidationError:
    return ValidationError(
        {
            "expires_at": "This key ends when it is not rotated in time: leave out its end, or its "
            "days of grace."
        }
    )
