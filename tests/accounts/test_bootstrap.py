"""The first administrator and the first key of a new installation."""

from __future__ import annotations

import pytest

from vinery_accounts.bootstrap import ensure_first_admin, ensure_first_key
from vinery_accounts.keys.lifecycle import create_key, revoke_key
from vinery_accounts.keys.secrets import looks_like_key
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import ApiKey, User

pytestmark = pytest.mark.django_db


def test_a_new_installation_gets_an_administrator() -> None:
    admin, password = ensure_first_admin()

    assert (admin.username, admin.is_superuser, admin.is_staff) == ("admin", True, True)
    assert password is not None
    assert len(password) == 20
    assert admin.check_password(password)


def test_a_second_start_creates_no_user_and_no_key() -> None:
    admin, password = ensure_first_admin()
    hashed = admin.password

    again, no_password = ensure_first_admin("other")

    assert (again, no_password) == (admin, None)
    assert again.password == hashed
    assert again.check_password(password)


def test_no_administrator_is_created_if_another_superuser_exists() -> None:
    root = User.objects.create_superuser("root")

    assert ensure_first_admin() == (root, None)
    assert User.objects.count() == 1


def test_an_active_superuser_is_preferred() -> None:
    User.objects.create_superuser("retired", is_active=False)
    active = User.objects.create_superuser("active")

    assert ensure_first_admin() == (active, None)


@pytest.mark.parametrize("first", ["admin", "Admin"])
def test_an_existing_user_is_not_promoted_because_of_their_name(first: str) -> None:
    for name in (first, "admin2", "administrator"):
        User.objects.create_user(name)

    admin, password = ensure_first_admin()

    assert admin.username == "admin3"
    assert admin.check_password(password)
    assert not User.objects.get(username=first).is_superuser


def test_the_first_key_is_accepted(alice: User) -> None:
    secret = ensure_first_key(alice)

    assert secret is not None
    assert looks_like_key(secret)
    table = KeyTable()
    table.refresh()
    caller = table.authenticate(f"Bearer {secret}")
    assert (caller.username, caller.key_name) == ("alice", "first key")


def test_there_is_one_first_key(alice: User, bob: User) -> None:
    revoke_key(create_key(owner=bob, name="old").key)

    assert ensure_first_key(alice) is None
    assert ApiKey.objects.count() == 1
