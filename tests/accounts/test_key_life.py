"""Creation, rotation, revocation and restrictions of keys, and the first key and administrator of a
new installation."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from tests.accounts.api.api_client import Keys
from tests.tables import table
from vinery_accounts.base.errors import NotAllowed
from vinery_accounts.keys.grants import ALL, Grants, read_grants
from vinery_accounts.keys.lifecycle import ensure_first_admin, rotate_key
from vinery_accounts.models import KeyState, Membership, Role, Scope, User

pytestmark = pytest.mark.django_db
WEEK = timedelta(days=7)


def test_a_rotated_key_works_during_its_grace_period_and_is_rotated_once(new_key: Keys) -> None:
    old = new_key(allowed_models=["small"], allowed_networks=["10.0.0.0/8"])

    new = rotate_key(old.key, grace=WEEK)

    assert new.secret != old.secret
    assert new.key.allowed_models == ["small"]
    assert new.key.allowed_networks == ["10.0.0.0/8"]
    assert new.key.project == old.key.project
    assert old.key.replaced_by == new.key
    now = timezone.now()
    assert old.key.state_at(now) is KeyState.ACTIVE
    assert old.key.state_at(now + WEEK) is KeyState.EXPIRED
    assert new.key.state_at(now + WEEK) is KeyState.ACTIVE

    with pytest.raises(ValueError, match="rotated already"):
        rotate_key(old.key, grace=WEEK)
    for column, word in (("paused_at", "paused"), ("revoked_at", "revoked")):
        type(new.key).objects.filter(pk=new.key.pk).update(**{column: timezone.now()})
        with pytest.raises(ValueError, match=word):
            rotate_key(new.key, grace=WEEK)


def test_a_grace_period_ends_by_the_expiry_and_without_one_a_key_is_revoked(new_key: Keys) -> None:
    soon = timezone.now() + timedelta(hours=1)
    old = new_key(expires_at=soon)
    rotate_key(old.key, grace=WEEK)
    assert old.key.expires_at == soon

    later = timezone.now() + WEEK
    old = new_key(expires_at=later)

    new = rotate_key(old.key, grace=timedelta(0))

    assert old.key.state_at(timezone.now()) is KeyState.REVOKED
    assert old.key.replaced_by == new.key
    assert (old.key.expires_at, new.key.expires_at) == (later, later)
    assert new.key.state_at(timezone.now()) is KeyState.ACTIVE
    with pytest.raises(ValueError, match="rotated already"):
        rotate_key(old.key, grace=timedelta(0))


@table(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"allowed_models": [""]},
        {"allowed_networks": ["10.0.0.1/8"]},
        {"allowed_networks": ["the office"]},
        {"name": ""},
    ],
)
def test_an_invalid_key_is_refused(new_key: Keys, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        new_key(**wrong)


def test_the_first_key_of_all_creates_a_project_of_its_owner(new_key: Keys, alice: User) -> None:
    project = new_key().key.project
    assert str(project) == "default / default"
    assert alice.memberships.get().role == Role.MEMBER
    assert new_key("second").key.project == project
    assert Membership.objects.count() == 1


def denied(grants: Grants, check: str, asked: object) -> str | None:
    try:
        getattr(grants, check)(asked)
    except NotAllowed as refused:
        return refused.code
    return None


SMALL_IN_THE_OFFICE = read_grants(
    '["inference"]', '["small"]', '["completions"]', '["10.0.0.0/8","2001:db8::/32"]'
)


@table(
    "check, allowed, other, code",
    [
        ("check_scope", Scope.INFERENCE, Scope.MANAGE, "missing_scope"),
        ("check_model", "small", "large", "model_not_allowed"),
        ("check_endpoint", "completions", "responses", "endpoint_not_allowed"),
        ("check_address", "10.1.2.3", "11.1.2.3", "address_not_allowed"),
        ("check_address", "2001:db8::1", "2001:db9::1", "address_not_allowed"),
        ("check_address", "::ffff:10.1.2.3", "::ffff:11.1.2.3", "address_not_allowed"),
        ("check_address", "10.1.2.3", None, "address_not_allowed"),
        ("check_address", "10.1.2.3", "a socket", "address_not_allowed"),
    ],
)
def test_a_key_may_be_restricted(check: str, allowed: object, other: object, code: str) -> None:
    assert denied(SMALL_IN_THE_OFFICE, check, allowed) is None
    assert denied(SMALL_IN_THE_OFFICE, check, other) == code
    assert denied(ALL, check, other) is None


# -- A new installation


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
