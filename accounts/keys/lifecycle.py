"""API keys: how they look, how they are made and how they end.

A key is `vny_<env>_`, 32 random base62 characters (190 bits), and six more that are the
CRC32 of all before them. The check catches slips of the clipboard without a look-up, and
lets secret scanners report leaks with hardly a false alarm; it protects nothing.

Only an HMAC of the key is stored, under a numbered pepper that is not in the database.
A slow password hash would add nothing to 190 random bits but the time it takes.
"""

from __future__ import annotations

import hmac
import re
import secrets
import string
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from accounts.base.errors import KeyRefused, Refusal
from accounts.keys import rotation
from accounts.models import ApiKey, KeyState, Limit, LimitScope, Project, User
from accounts.models.names import mended
from accounts.services import audit, changes
from accounts.services.people import home_project

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_NUM_RANDOM = 32
_NUM_CHECK = 6  # 62**6 is the first power above 2**32
_PAIRS = tuple((a + b).encode() for a in _ALPHABET for b in _ALPHABET)
_ENV = "live"
_FORMAT = re.compile(rb"vny_[a-z]{2,8}_[0-9A-Za-z]{38}")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. `secret` is known now and never again."""

    key: ApiKey
    secret: str


def key_peppers() -> Mapping[int, bytes]:
    """The secrets under which keys are stored, by number. The highest makes new keys.

    Raises `ImproperlyConfigured` when there is none.
    """
    peppers: Mapping[int, bytes] = getattr(settings, "VINERY_KEY_PEPPERS", {})
    if not peppers or not all(peppers.values()):
        raise ImproperlyConfigured(
            "VINERY_KEY_PEPPERS must map at least one number to a secret, such as {1: b'...'}."
        )
    return peppers


def create_key(*, owner: User, project: Project | None = None, **columns: Any) -> NewKey:
    """Store a new key with these columns of `ApiKey`. Without a project the key belongs to the
    owner's first one. `rotation_grace_days` sets the expiry.

    Raises `ValidationError` for invalid values.
    """
    return _with_secret(ApiKey(owner=owner, project=project or home_project(owner), **columns))


def change_key(key: ApiKey, **values: object) -> ApiKey:
    """Give a key other values. Raises `ValidationError` for those that no key can have."""
    with audit.writing():
        stored = ApiKey.objects.get(pk=key.pk)
        whole = rotation.with_end(stored, values, timezone.now())
        return changes.change(key, "update", **whole)


def rotate_key(key: ApiKey, *, grace: timedelta) -> NewKey:
    """A new key that may do the same, and whose days until the next rotation begin now. The old
    one works for the time of `grace`, unless it expires before that; without any it is revoked.
    Its limits go over to the new one, with what is used of them, and hold for both together.
    Raises ValueError for a key that is paused, revoked, or was rotated before."""
    with audit.writing():
        return _rotate(key, grace)


def _rotate(key: ApiKey, grace: timedelta) -> NewKey:
    old = ApiKey.objects.select_for_update().get(pk=key.pk)
    if old.replaced_by_id is not None:
        raise ValueError("This key has been rotated already. Rotate the one that replaced it.")
    if old.revoked_at is not None:
        raise ValueError("This key is revoked. Create a new one.")
    if old.paused_at is not None:
        raise ValueError("This key is paused. Resume it first, or create a new one.")
    columns = {
        field.name: getattr(old, field.name)
        for field in ApiKey._meta.concrete_fields
        if field.editable and not field.primary_key
    }
    columns["name"] = mended(old.name)
    if old.rotation_grace_days is not None:
        columns["expires_at"] = None  # it follows from the days
    new = _with_secret(ApiKey(**columns))
    before = audit.snapshot(old)
    now = timezone.now()
    if grace > timedelta(0):
        old.expires_at = min(old.expires_at or now + grace, now + grace)
    else:
        old.revoked_at = now
    old.replaced_by = new.key
    old.save(update_fields=["expires_at", "revoked_at", "replaced_by"])
    audit.record_change("rotate", old, before)
    for limit in Limit.objects.filter(scope=LimitScope.KEY, scope_id=old.pk):
        changes.switch(limit, "update", scope_id=new.key.pk)
    key.refresh_from_db()
    return new


def _with_secret(key: ApiKey) -> NewKey:
    """Draw the secret of a key that is otherwise complete, and store the key."""
    key.expires_at = rotation.end_of_new(vars(key), timezone.now())
    secret = new_secret()
    peppers = key_peppers()
    key.pepper_id = max(peppers)
    key.hint = hint_of(secret)
    key.digest = digest_of(secret.encode(), peppers[key.pepper_id]).hex()
    return NewKey(changes.add(key), secret)


def revoke_key(key: ApiKey) -> None:
    """Stop the key for good. A key that is revoked keeps the time of the first time."""
    with audit.writing():
        if not _is_in(key, "revoked_at"):
            changes.switch(key, "revoke", revoked_at=timezone.now())


def pause_key(key: ApiKey) -> None:
    """Stop the key until it is resumed. A key that is revoked stays as it is."""
    with audit.writing():
        if not _is_in(key, "revoked_at") and key.paused_at is None:
            changes.switch(key, "pause", paused_at=timezone.now())


def resume_key(key: ApiKey) -> None:
    """Let a paused key open the door again."""
    with audit.writing():
        if _is_in(key, "paused_at"):
            changes.switch(key, "resume", paused_at=None)


def find_key(secret: str) -> ApiKey:
    """The key with this secret, from the database: for doors without a key table.

    Raises `KeyRefused` for one that opens no door now.
    """
    if not looks_like_key(secret):
        raise KeyRefused(Refusal.MALFORMED if secret else Refusal.MISSING)
    digests = [digest_of(secret.encode(), pepper).hex() for pepper in key_peppers().values()]
    keys = ApiKey.objects.select_related("owner", "project__organization")
    key = keys.filter(digest__in=digests).first()
    if key is None:
        raise KeyRefused(Refusal.UNKNOWN)
    state = key.state_at(timezone.now())
    if state is not KeyState.ACTIVE:
        raise KeyRefused(Refusal[state.name])
    return key


def _is_in(key: ApiKey, mark: str) -> bool:
    """Whether the stored key has the mark, which the one in hand is given too."""
    key.refresh_from_db(fields=["revoked_at", "paused_at", "updated_at"])
    return getattr(key, mark) is not None


def looks_like_key(text: str | bytes) -> bool:
    """Whether length, alphabet and check characters are those of a key."""
    secret = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if _FORMAT.fullmatch(secret) is None:
        return False
    return _check_characters(secret[:-_NUM_CHECK]) == secret[-_NUM_CHECK:]


def digest_of(secret: bytes, pepper: bytes) -> bytes:
    """What is stored of a key, 32 bytes."""
    # Not `hmac.digest`: it lets other threads run, and the event loop would wait for them.
    keyed = _keyed(pepper).copy()
    keyed.update(secret)
    return keyed.digest()


@lru_cache(maxsize=16)
def _keyed(pepper: bytes) -> hmac.HMAC:
    return hmac.new(pepper, digestmod="sha256")


def new_secret(env: str = _ENV) -> str:
    """The text of a new key."""
    random = "".join(secrets.choice(_ALPHABET) for _ in range(_NUM_RANDOM))
    body = f"vny_{env}_{random}"
    return body + _check_characters(body.encode()).decode()


def hint_of(secret: str) -> str:
    """Enough of a key to recognise it, such as `vny_live_aB3d…x9`."""
    num_shown = len(secret) - _NUM_RANDOM - _NUM_CHECK + 4
    return f"{secret[:num_shown]}…{secret[-2:]}"


def _check_characters(body: bytes) -> bytes:
    number, low = divmod(zlib.crc32(body), 62**2)
    high, middle = divmod(number, 62**2)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]
