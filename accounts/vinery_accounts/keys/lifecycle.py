"""API keys: how they are created, changed, rotated, renewed, paused, revoked and found."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from vinery_accounts.access import audit, changes
from vinery_accounts.access.changes import home_project
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.base.names import repaired
from vinery_accounts.keys.secrets import digest_of, hint_of, key_peppers, looks_like_key, new_secret
from vinery_accounts.models import ApiKey, KeyState, Limit, LimitScope, Project, User

# The second part of a secret. An admin key is recognised by its hint, and by secret scanners.
_LIVE: Final = "live"
_ADMIN: Final = "admin"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key. `secret` is known only now: it is not stored."""

    key: ApiKey
    secret: str


def create_key(*, owner: User, project: Project | None = None, **columns: Any) -> NewKey:
    """Store a new key with these columns of `ApiKey`. Without a project the key belongs to the
    owner's home project. `rotation_grace_days` sets the expiry. Raises `ValidationError` for
    invalid values."""
    return _with_secret(ApiKey(owner=owner, project=project or home_project(owner), **columns))


def change_key(key: ApiKey, **values: object) -> ApiKey:
    with audit.writing():
        stored = ApiKey.objects.get(pk=key.pk)
        whole = with_expiry(stored, values, timezone.now())
        return changes.change(key, "update", **whole)


@audit.writing()
def rotate_key(key: ApiKey, *, grace: timedelta) -> NewKey:
    """Create a key with the same permissions; its days until the next rotation begin now. The old
    key stays valid for `grace`, or until an earlier expiry; without grace, the old key is revoked.
    Limits and their use move to the new key, and apply to both keys together. Raises ValueError for
    a key that is paused or revoked, or was rotated before."""
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
    columns["name"] = repaired(old.name)
    if old.rotation_grace_days is not None:
        columns["expires_at"] = None  # follows from the days
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


def renew_key(key: ApiKey, *, expires_at: datetime) -> NewKey:
    """Give a key another secret and expiry. The former secret is refused from now on. Limits, usage
    and permissions stay with the key."""
    secret, columns = _new_secret_of(key)
    return NewKey(changes.switch(key, "renew", expires_at=expires_at, **columns), secret)


def _with_secret(key: ApiKey) -> NewKey:
    key.expires_at = expiry_of_new(vars(key), timezone.now())
    secret, columns = _new_secret_of(key)
    for name, value in columns.items():
        setattr(key, name, value)
    return NewKey(
        changes.add(key, "create_admin" if key.is_for_administration else "create"), secret
    )


def _new_secret_of(key: ApiKey) -> tuple[str, dict[str, Any]]:
    secret = new_secret(_ADMIN if key.is_for_administration else _LIVE)
    peppers = key_peppers()
    number = max(peppers)
    digest = digest_of(secret.encode(), peppers[number]).hex()
    return secret, {"pepper_id": number, "hint": hint_of(secret), "digest": digest}


def revoke_key(key: ApiKey) -> None:
    """Revoke the key. A revoked key keeps its time of revocation."""
    with audit.writing():
        if not _has(key, "revoked_at"):
            changes.switch(key, "revoke", revoked_at=timezone.now())


def pause_key(key: ApiKey) -> None:
    with audit.writing():
        if not _has(key, "revoked_at") and key.paused_at is None:
            changes.switch(key, "pause", paused_at=timezone.now())


def resume_key(key: ApiKey) -> None:
    with audit.writing():
        if _has(key, "paused_at"):
            changes.switch(key, "resume", paused_at=None)


def find_key(secret: str) -> ApiKey:
    """The key with this secret, read from the database, for processes without a key table. Raises
    `KeyRefused` if the key is not valid now."""
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


def _has(key: ApiKey, field: str) -> bool:
    key.refresh_from_db(fields=["revoked_at", "paused_at", "updated_at"])
    return getattr(key, field) is not None


def matching(text: str) -> Q:
    # Subqueries, because there are fewer owners and projects than keys.
    owners = User.objects.filter(username__icontains=text).order_by()
    projects = Project.objects.filter(name__icontains=text).order_by()
    of_key = Q(name__icontains=text) | Q(hint__contains=text)
    return of_key | Q(owner__in=owners) | Q(project__in=projects)


# -- A new installation


@transaction.atomic
def ensure_first_admin(username: str = "admin") -> tuple[User, str | None]:
    """A superuser, and the password if this call created the superuser. If superusers exist,
    returns the oldest active superuser, or else the oldest, and None. If an ordinary user has the
    name, the new superuser's name gets a number."""
    oldest = User.objects.filter(is_superuser=True).order_by("-is_active", "id").first()
    if oldest is not None:
        return oldest, None
    password = changes.new_password()
    admin = User(username=_free_name(username), is_superuser=True, is_staff=True)
    admin.set_password(password)
    return changes.add(admin), password


@transaction.atomic
def ensure_first_key(owner: User) -> str | None:
    if ApiKey.objects.exists():
        return None
    return create_key(owner=owner, name="first key").secret


def _free_name(username: str) -> str:
    names = User.objects.filter(username__istartswith=username).values_list("username", flat=True)
    taken = {name.lower() for name in names}
    numbered = (f"{username}{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (username, *numbered) if name.lower() not in taken)


# -- Scheduled rotation


_DAYS: Final = ("rotate_every_days", "rotation_grace_days")


def expiry_of_new(values: Mapping[str, Any], now: datetime) -> datetime | None:
    """The `expires_at` of a key that is created now with these values. Raises `ValidationError` for
    invalid days, and for both days of grace and an expiry."""
    expiry = _expiry(values, now)
    expires_at: datetime | None = values.get("expires_at")
    if expiry is not None and expires_at is not None:
        raise _two_expiries()
    return expiry or expires_at


def with_expiry(stored: ApiKey, values: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The new values of a key, with the resulting `expires_at`. Raises `ValidationError` for
    invalid days, for both days of grace and an expiry, and for a key that would expire at once."""
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
    """When a key created at that time expires without rotation, in whole seconds as in forms. None
    without days of grace. Raises `ValidationError` for invalid days."""
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
