"""Keys with a rotation interval: due times, and expiry without a rotation."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st

from tests.accounts.api.api_client import Keys
from tests.tables import table
from vinery_accounts.keys import lifecycle
from vinery_accounts.keys.lifecycle import change_key, rotate_key
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import ApiKey, KeyState

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def aged(key: ApiKey, days: int) -> ApiKey:
    """Let the key be that many days older, and expire that much earlier."""
    key.created_at -= days * DAY
    if key.expires_at is not None:
        key.expires_at -= days * DAY
    ApiKey.objects.filter(pk=key.pk).update(created_at=key.created_at, expires_at=key.expires_at)
    return key


def refused(act: Callable[..., Any], *arguments: Any, **values: Any) -> list[str]:
    """The names of wrong fields."""
    with pytest.raises(ValidationError) as error:
        act(*arguments, **values)
    return list(error.value.message_dict)


def test_a_key_is_due_some_days_after_its_creation_or_rotation(new_key: Keys) -> None:
    key = new_key(rotate_every_days=90).key

    due_at = key.created_at + 90 * DAY
    assert key.rotation_due_at == due_at
    assert not key.is_rotation_overdue(due_at - timedelta(seconds=1))
    assert key.is_rotation_overdue(due_at)
    # Without a grace period, the key does not expire.
    assert key.expires_at is None
    assert key.state_at(due_at + 1000 * DAY) is KeyState.ACTIVE

    key = new_key().key
    assert key.rotation_due_at is None
    assert not key.is_rotation_overdue(timezone.now() + 1000 * DAY)

    old = aged(new_key(rotate_every_days=90).key, 100)
    assert old.is_rotation_overdue(timezone.now())

    new = rotate_key(old, grace=DAY).key
    assert new.rotate_every_days == 90
    assert new.rotation_due_at == new.created_at + 90 * DAY
    assert not new.is_rotation_overdue(timezone.now())
    # The replaced key is no longer overdue.
    assert not old.is_rotation_overdue(timezone.now())


def test_a_key_expires_after_its_grace_unless_rotated(new_key: Keys, table: KeyTable) -> None:
    created = new_key(rotate_every_days=90, rotation_grace_days=7)
    end = (created.key.created_at + 97 * DAY).replace(microsecond=0)
    assert abs(created.key.expires_at - end) <= timedelta(seconds=1)

    aged(created.key, 98)
    assert created.key.state_at(timezone.now()) is KeyState.EXPIRED

    new = rotate_key(created.key, grace=DAY).key
    assert new.state_at(timezone.now() + 96 * DAY) is KeyState.ACTIVE
    assert new.state_at(timezone.now() + 98 * DAY) is KeyState.EXPIRED

    created = new_key(rotate_every_days=90, rotation_grace_days=7)
    aged(created.key, 98)
    table.refresh()
    assert not table.is_valid(created.key.pk)


@table(
    "values",
    [
        {"rotate_every_days": 0},
        {"rotate_every_days": 3651},
        {"rotate_every_days": 10**12},
        {"rotate_every_days": -1},
        {"rotate_every_days": 90, "rotation_grace_days": 366},
        {"rotate_every_days": 90, "rotation_grace_days": -1},
        {"rotation_grace_days": 7},
    ],
)
def test_invalid_days_are_refused(new_key: Keys, values: dict[str, int]) -> None:
    assert refused(new_key, **values) == [list(values)[-1]]
    assert refused(change_key, new_key().key, **values) == [list(values)[-1]]


def test_a_key_has_either_an_expiry_or_a_grace_period(new_key: Keys) -> None:
    later = timezone.now() + 30 * DAY
    days = {"rotate_every_days": 90, "rotation_grace_days": 7}

    assert refused(new_key, expires_at=later, **days) == ["expires_at"]
    assert refused(change_key, new_key(expires_at=later).key, **days) == ["expires_at"]
    assert refused(change_key, new_key(**days).key, expires_at=later) == ["expires_at"]

    # A key with a rotation interval and no grace period may have an expiry.
    key = new_key(expires_at=later, rotate_every_days=90).key
    assert rotate_key(key, grace=DAY).key.expires_at == later


def test_the_expiry_follows_the_days(new_key: Keys) -> None:
    key = new_key(rotate_every_days=90).key

    def end() -> timedelta | None:
        key.refresh_from_db()
        return None if key.expires_at is None else key.expires_at - _whole(key.created_at)

    change_key(key, rotation_grace_days=7)
    assert end() == 97 * DAY
    change_key(key, rotate_every_days=30)
    assert end() == 37 * DAY
    # A form sends all fields.
    change_key(key, name="spider", expires_at=key.expires_at, rotation_grace_days=7)
    assert end() == 37 * DAY
    change_key(key, rotation_grace_days=None)
    assert end() is None
    later = timezone.now() + 3 * DAY
    change_key(key, expires_at=later)
    change_key(key, rotate_every_days=None)
    assert key.expires_at == later


def test_a_change_of_days_that_would_expire_the_key_is_refused(new_key: Keys) -> None:
    key = aged(new_key(rotate_every_days=90).key, 100)

    assert refused(change_key, key, rotation_grace_days=7) == ["rotation_grace_days"]

    change_key(key, rotation_grace_days=14)
    assert key.state_at(timezone.now()) is KeyState.ACTIVE


DAYS = st.none() | st.integers(1, 100)
MADE = timezone.now()
NOW = MADE + 50 * DAY


@example(before=(1, 2), after=(2, 1), own=None)
@given(
    before=st.tuples(DAYS, DAYS),
    after=st.tuples(DAYS, DAYS),
    own=st.none() | st.integers(51, 300).map(lambda days: MADE + days * DAY),
)
def test_after_any_change_the_expiry_follows_the_grace_period_or_the_set_time(
    before: tuple[int | None, int | None],
    after: tuple[int | None, int | None],
    own: datetime | None,
) -> None:
    names = ("rotate_every_days", "rotation_grace_days")
    key = ApiKey(created_at=MADE, **dict(zip(names, before, strict=True)))
    try:
        key.expires_at = lifecycle.expiry_of_new({**vars(key), "expires_at": own}, MADE)
        values = lifecycle.with_expiry(key, dict(zip(names, after, strict=True)), NOW)
    except ValidationError:
        return

    every, grace = after
    end = values.get("expires_at", key.expires_at)
    if every is not None and grace is not None:
        assert end == _whole(MADE) + (every + grace) * DAY
        assert end > NOW or end == key.expires_at  # the key was already expired
    else:
        assert end == own


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
