"""The first administrator and the first key of a new installation."""

import pytest

from vinery_accounts.keys.lifecycle import (
    ensure_first_admin,
    ensure_first_key,
)
from vinery_accounts.keys.secrets import looks_like_key
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import User

pytestmark = pytest.mark.django_db


def test_a_new_installation_gets_one_administrator() -> None:
    admin, password = ensure_first_admin()
    assert (admin.username, admin.is_superuser, admin.is_staff) == ("admin", True, True)
    assert password is not None
    assert len(password) == 20

    again, no_password = ensure_first_admin("other")

    assert (again, no_password) == (admin, None)
    assert again.password == admin.password
    assert again.check_password(password)


def test_a_superuser_is_the_administrator_an_active_one_before_others() -> None:
    root = User.objects.create_superuser("root", is_active=False)
    assert ensure_first_admin() == (root, None)

    active = User.objects.create_superuser("active")

    assert ensure_first_admin() == (active, None)
    assert User.objects.count() == 2


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
