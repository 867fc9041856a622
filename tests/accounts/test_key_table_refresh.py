"""The key table follows the database with few queries, and misses no change: every way to write a
row updates its stamp."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from tests.accounts.key_tables import LONG_AGO, MakeKey, bearer, refusal
from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.base.errors import Refusal
from vinery_accounts.base.querysets import Stamped
from vinery_accounts.keys.lifecycle import create_key, revoke_key
from vinery_accounts.keys.table import _COUNTS_SQL, OVERLAP_S, KeyTable
from vinery_accounts.models import ApiKey, KeyUse, Organization, Project, User

pytestmark = pytest.mark.stores
Settle = Callable[[], KeyTable]


@pytest.fixture
def settle(table: KeyTable, clock: FakeClock) -> Settle:
    """Load the table after a long time without changes, so that no late write is expected."""

    def settled() -> KeyTable:
        ApiKey.objects.update(updated_at=LONG_AGO)
        User.objects.update(updated_at=LONG_AGO)
        table.refresh()
        clock.now_s += 2 * OVERLAP_S
        table.refresh()
        return table

    return settled


def test_a_refresh_needs_two_queries_and_reads_only_new_keys(
    table: KeyTable, settle: Settle, new_key: MakeKey, django_assert_num_queries: Any
) -> None:
    new_key("old")
    settle()
    with django_assert_num_queries(2):
        table.refresh()

    table = settle()
    # A read of the row would return the new name, but the row has no newer stamp.
    ApiKey.objects.filter(name="old").update(name="changed", updated_at=LONG_AGO)
    Project.objects.update(updated_at=LONG_AGO)
    Organization.objects.update(updated_at=LONG_AGO)
    created = new_key("new")
    with django_assert_num_queries(3):
        table.refresh()
    assert table.authenticate(bearer(created.secret)).key_name == "new"
    names = {entry.caller.key_name for entry in table._entries.values()}
    assert names == {"old", "new"}


@pytest.mark.parametrize("table_of", [ApiKey, User, Project, Organization])
def test_a_change_is_read_once_while_late_writes_are_expected(
    settle: Settle, new_key: MakeKey, clock: FakeClock, table_of: type[Stamped]
) -> None:
    """For example the owner of a hundred thousand keys signs in, or a project is renamed."""
    created = new_key("old")
    table = settle()
    table_of.objects.update(updated_at=clock.moment())
    table.refresh()
    # A read of the row would return the new name, but the row has no newer stamp.
    ApiKey._base_manager.filter(pk=created.key.pk).update(name="behind")

    for _ in range(3):
        clock.now_s += OVERLAP_S / 4
        table.refresh()

    assert table.authenticate(bearer(created.secret)).key_name == "old"


def test_each_new_key_waits_for_its_own_admission(table: KeyTable, new_key: MakeKey) -> None:
    created = new_key("old")
    table.refresh()
    ApiKey._base_manager.filter(pk=created.key.pk).update(name="behind")
    table.refresh()
    assert table.authenticate(bearer(created.secret)).key_name == "old"

    old = new_key("older")
    table.refresh()
    created = new_key("new")
    table.follow()
    assert refusal(table, bearer(created.secret)) is Refusal.UNKNOWN
    assert not table.is_valid(created.key.pk)
    assert table.authenticate(bearer(old.secret)).key_name == "older"
    table.admit(table.num_read)
    assert table.authenticate(bearer(created.secret)).key_name == "new"
    assert table.is_valid(created.key.pk)

    table.refresh()
    first = new_key("first")
    table.follow()
    num_read = table.num_read
    second = new_key("second")
    table.follow()
    table.admit(num_read)
    assert table.authenticate(bearer(first.secret)).key_name == "first"
    assert refusal(table, bearer(second.secret)) is Refusal.UNKNOWN


# -- New keys -----------------------------------------------------------------------------------


def test_deleted_keys_become_unknown(table: KeyTable, new_key: MakeKey, settle: Settle) -> None:
    known = new_key("known")
    table.refresh()
    coming = new_key("coming")
    table.follow()
    ApiKey.objects.filter(pk=coming.key.pk).delete()
    table.follow()
    table.admit(table.num_read)
    assert refusal(table, bearer(coming.secret)) is Refusal.UNKNOWN
    assert table.authenticate(bearer(known.secret)).key_name == "known"
    assert len(table) == 1

    gone = new_key("gone")
    table = settle()
    gone.key.delete()
    come = new_key("come")
    table.refresh()
    assert len(table) == 2
    assert refusal(table, bearer(gone.secret)) is Refusal.UNKNOWN
    assert table.authenticate(bearer(come.secret)).key_name == "come"


def test_neither_waiting_nor_revoked_keys_cause_a_full_load(
    settle: Settle, new_key: MakeKey, monkeypatch: pytest.MonkeyPatch, table: KeyTable
) -> None:
    new_key("old")
    table = settle()
    new_key("new")
    table.follow()
    monkeypatch.setattr(table, "_load", pytest.fail)
    table.follow()
    assert len(table) == 2

    known = new_key("known")
    table.refresh()
    coming = new_key("coming")
    table.follow()
    for created in (known, coming):
        revoke_key(created.key)
    # If the number of keys were wrong afterwards, all keys would be read again.
    table.follow()
    for created in (known, coming):
        assert refusal(table, bearer(created.secret)) is Refusal.REVOKED
    table.admit(table.num_read)
    assert refusal(table, bearer(coming.secret)) is Refusal.REVOKED


# -- Changes ------------------------------------------------------------------------------------


def update_key(manager: Any, **values: Any) -> Callable[[ApiKey], object]:
    return lambda key: manager.filter(pk=key.pk).update(**values)


def deactivate_owner(manager: Any) -> Callable[[ApiKey], object]:
    return lambda key: manager.filter(pk=key.owner_id).update(is_active=False)


def save_inactive_owner(key: ApiKey) -> None:
    User(**{**User.objects.filter(pk=key.owner_id).values().get(), "is_active": False}).save()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (revoke_key, Refusal.REVOKED),
        (update_key(ApiKey.objects, revoked_at=timezone.now()), Refusal.REVOKED),
        (update_key(ApiKey._base_manager, revoked_at=timezone.now()), Refusal.REVOKED),
        (update_key(ApiKey.objects, expires_at=LONG_AGO), Refusal.EXPIRED),
        (lambda key: key.delete(), Refusal.UNKNOWN),
        (lambda key: key.owner.delete(), Refusal.UNKNOWN),
        (save_inactive_owner, Refusal.OWNER_INACTIVE),
        (deactivate_owner(User.objects), Refusal.OWNER_INACTIVE),
        (deactivate_owner(User._base_manager), Refusal.OWNER_INACTIVE),
    ],
)
def test_a_stopped_key_is_refused_after_the_next_refresh(
    settle: Settle, new_key: MakeKey, bob: User, change: Callable[[ApiKey], object], reason: Refusal
) -> None:
    created, others = new_key(), new_key(owner=bob)
    table = settle()
    change(created.key)

    table.refresh()

    assert refusal(table, bearer(created.secret)) is reason
    assert table.authenticate(bearer(others.secret)).username == "bob"


def test_users_who_are_active_again_and_new_names_are_read_whatever_the_clock(
    settle: Settle, new_key: MakeKey, clock: FakeClock
) -> None:
    created = new_key()
    User.objects.update(is_active=False)
    table = settle()
    User.objects.update(is_active=True, username="alicia")
    table.refresh()
    assert table.authenticate(bearer(created.secret)).username == "alicia"

    created = new_key()
    table = settle()
    clock.now_s -= 3600
    ApiKey.objects.update(name="renamed", updated_at=clock.moment())
    table.refresh()
    assert table.authenticate(bearer(created.secret)).key_name == "renamed"


@pytest.mark.parametrize(
    # The last case: there was no refresh for long, as when the database is unavailable.
    ("age_s", "pause_s"),
    [(0.0, 1), (0.001, 1), (5.0, 1), (OVERLAP_S - 1, 1), (0.0, 10 * OVERLAP_S)],
)
def test_a_late_write_with_an_older_stamp_is_read(
    settle: Settle, new_key: MakeKey, clock: FakeClock, age_s: float, pause_s: float
) -> None:
    """A transaction may commit after a younger transaction. Count and newest stamp stay."""
    late, quick = new_key("late"), new_key("quick")
    table = settle()
    seen = clock.moment()
    ApiKey.objects.filter(pk=quick.key.pk).update(name="seen", updated_at=seen)
    table.refresh()
    clock.now_s += pause_s
    stamp = seen - timedelta(seconds=age_s)
    ApiKey.objects.filter(pk=late.key.pk).update(name="committed later", updated_at=stamp)

    table.refresh()

    assert table.authenticate(bearer(late.secret)).key_name == "committed later"


@pytest.mark.parametrize("num_before", [0, 1])
def test_the_old_keys_are_used_while_the_database_fails_and_changes_are_read_afterwards(
    settle: Settle, new_key: MakeKey, num_before: int
) -> None:
    created = new_key()
    table = settle()
    revoke_key(created.key)
    queries = iter(range(100))

    def fails(execute: Any, *args: Any) -> Any:
        if next(queries) >= num_before:
            raise OperationalError("no database")
        return execute(*args)

    with connection.execute_wrapper(fails), pytest.raises(OperationalError):
        table.refresh()

    assert table.authenticate(bearer(created.secret)).username == "alice"
    table.refresh()
    assert refusal(table, bearer(created.secret)) is Refusal.REVOKED


def test_every_count_uses_an_index(db: None, alice: User) -> None:
    create_key(owner=alice, name="laptop")

    scans = sqlite_scans() if connection.vendor == "sqlite" else postgresql_scans()

    assert scans
    assert all("index" in scan.lower() for scan in scans), scans


def sqlite_scans() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + _COUNTS_SQL)
        steps = [str(row[3]) for row in cursor.fetchall()]
    return [step for step in steps if step.startswith("SCAN accounts_")]


def postgresql_scans() -> list[str]:
    """PostgreSQL scans small tables in full. Forbid this wherever an index exists."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute("EXPLAIN " + _COUNTS_SQL)
        steps = [str(row[0]) for row in cursor.fetchall()]
    return [step for step in steps if "Scan" in step and " on accounts_" in step]


# -- Stamps, which every way to write a row updates


@pytest.fixture
def key(new_key: MakeKey) -> ApiKey:
    """Return a key of alice. Neither has changed for years."""
    key = new_key().key
    ApiKey.objects.update(updated_at=LONG_AGO)
    User.objects.update(updated_at=LONG_AGO)
    key.refresh_from_db()
    return key


def stamp_of(row: ApiKey | User) -> datetime:
    row.refresh_from_db()
    return row.updated_at


def test_no_save_of_nothing_and_no_use_moves_a_stamp(key: ApiKey, new_key: MakeKey) -> None:
    key.save(update_fields=[])
    assert stamp_of(key) == LONG_AGO

    other, used_at = new_key().key, timezone.now()
    uses = [KeyUse(other.pk, used_at, "::1", "a"), KeyUse(key.pk, used_at, None, "b")]
    ApiKey.objects.mark_used(uses)
    # An earlier use does not replace a later use.
    ApiKey.objects.mark_used([KeyUse(key.pk, LONG_AGO, "10.0.0.7", "c")])
    assert stamp_of(key) == LONG_AGO
    other.refresh_from_db()
    assert (key.last_used_at, key.last_used_ip, key.last_used_model) == (used_at, None, "b")
    assert (other.last_used_at, other.last_used_ip, other.last_used_model) == (used_at, "::1", "a")


KEY_WRITES: list[Callable[[ApiKey], object]] = [
    lambda key: key.save(),
    lambda key: key.owner.api_keys.update(name="renamed"),
    lambda key: ApiKey.objects.bulk_update([key], ["name"]),
    lambda key: changes.change(ApiKey.objects.get(pk=key.pk), note="changed"),
    lambda key: ApiKey.objects.update_or_create(digest=key.digest, defaults={"name": "renamed"}),
]
USER_WRITES: list[Callable[[ApiKey], object]] = [
    lambda key: key.owner.save(update_fields=["is_active"]),
    lambda key: User.objects.all().update(is_active=False),
    lambda key: User._default_manager.filter(username="alice").update(is_active=False),
    lambda key: User.objects.exclude(username="bob").order_by("id").update(is_active=False),
]


@table("write", [*KEY_WRITES, *USER_WRITES])
def test_a_write_moves_the_stamp(key: ApiKey, write: Callable[[ApiKey], object]) -> None:
    ApiKey.objects.update(updated_at=LONG_AGO)
    User.objects.update(updated_at=LONG_AGO)
    key.name = "renamed"

    write(key)

    assert stamp_of(key if write in KEY_WRITES else key.owner) > LONG_AGO
