"""Every way to write a row updates its stamp."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import ApiKey, KeyUse, User

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def key(new_key: Callable[..., NewKey]) -> ApiKey:
    """Return a key of alice. Neither has changed for years."""
    key = new_key().key
    ApiKey.objects.update(updated_at=LONG_AGO)
    User.objects.update(updated_at=LONG_AGO)
    key.refresh_from_db()
    return key


def stamp_of(row: ApiKey | User) -> datetime:
    row.refresh_from_db()
    return row.updated_at


def test_a_save_moves_the_stamp(key: ApiKey) -> None:
    key.save()

    assert stamp_of(key) > LONG_AGO


def test_a_save_of_one_field_moves_the_stamp(key: ApiKey) -> None:
    key.owner.is_active = False
    key.owner.save(update_fields=["is_active"])

    assert stamp_of(key.owner) > LONG_AGO


def test_a_save_of_no_field_writes_nothing(key: ApiKey) -> None:
    key.save(update_fields=[])

    assert stamp_of(key) == LONG_AGO


@pytest.mark.parametrize(
    "users",
    [
        lambda: User.objects.all(),
        lambda: User._default_manager.filter(username="alice"),
        lambda: User.objects.exclude(username="bob").order_by("id"),
    ],
)
def test_an_update_of_users_moves_the_stamp(key: ApiKey, users: Callable) -> None:
    users().update(is_active=False)

    assert stamp_of(key.owner) > LONG_AGO


def test_an_update_through_the_owner_moves_the_stamp(key: ApiKey) -> None:
    key.owner.api_keys.update(name="renamed")

    assert stamp_of(key) > LONG_AGO


def test_a_bulk_update_moves_the_stamp(key: ApiKey) -> None:
    key.name = "renamed"
    ApiKey.objects.bulk_update([key], ["name"])

    assert stamp_of(key) > LONG_AGO


def test_update_or_create_moves_the_stamp(key: ApiKey) -> None:
    ApiKey.objects.update_or_create(digest=key.digest, defaults={"name": "renamed"})

    assert stamp_of(key) > LONG_AGO


def test_a_use_of_a_key_does_not_move_the_stamp(key: ApiKey) -> None:
    used_at = timezone.now()

    ApiKey.objects.mark_used([KeyUse(key.pk, used_at, "10.0.0.7", "tiny-chat")])

    assert stamp_of(key) == LONG_AGO
    assert key.last_used_at == used_at


def test_an_earlier_use_does_not_hide_a_later_one(key: ApiKey) -> None:
    used_at = timezone.now()

    ApiKey.objects.mark_used([KeyUse(key.pk, used_at, "10.0.0.7", "tiny-chat")])
    ApiKey.objects.mark_used([KeyUse(key.pk, LONG_AGO, None, "other")])

    key.refresh_from_db()
    assert key.last_used_at == used_at
    assert (key.last_used_ip, key.last_used_model) == ("10.0.0.7", "tiny-chat")


def test_the_uses_of_many_keys_are_stored_together(
    key: ApiKey, new_key: Callable[..., NewKey]
) -> None:
    other = new_key().key
    used_at = timezone.now()

    ApiKey.objects.mark_used(
        [KeyUse(other.pk, used_at, "::1", "a"), KeyUse(key.pk, used_at, None, "b")]
    )

    for each in (key, other):
        each.refresh_from_db()
    assert (key.last_used_at, key.last_used_ip, key.last_used_model) == (used_at, None, "b")
    assert (other.last_used_at, other.last_used_ip, other.last_used_model) == (used_at, "::1", "a")
