"""Authentication of callers from memory."""

from datetime import timedelta
from typing import Any

from tests.accounts.key_tables import MakeKey, bearer, refusal
from tests.fakes.clock import FakeClock
from vinery_accounts.access import changes
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.keys.grants import Grants
from vinery_accounts.keys.lifecycle import change_key, rotate_key
from vinery_accounts.keys.secrets import new_secret
from vinery_accounts.keys.table import Caller, KeyTable, Storage
from vinery_accounts.models import User


def test_a_key_has_its_caller_and_grants(table: KeyTable, new_key: MakeKey, alice: User) -> None:
    created = new_key("laptop")
    table.refresh()

    caller = table.authenticate(bearer(created.secret))

    project = created.key.project
    assert caller == Caller(
        user_id=alice.pk,
        username="alice",
        key_id=created.key.pk,
        key_name="laptop",
        project_id=project.pk,
        project_name="default",
        organization_id=project.organization.pk,
        organization_name="default",
        grants=Grants(frozenset({"inference", "usage"})),
        storage=Storage(days=30, max_bytes=2**30),
    )

    created = new_key(
        scopes=["manage"],
        allowed_models=["small"],
        allowed_endpoints=["completions"],
        allowed_networks=["10.0.0.0/8"],
    )
    table.refresh()
    assert table.authenticate(bearer(created.secret)).grants == Grants(
        frozenset({"manage"}), frozenset({"small"}), frozenset({"completions"}), ("10.0.0.0/8",)
    )


MALFORMED = (
    *("Basic {}", "Bearer\t{}", "Bearer {} {}"),
    *("Bearer: {}", "{}", "Bearer \u00e4{}", "Bearer sk-proj-0123456789"),
)


def test_a_caller_follows_what_its_project_keeps(table: KeyTable, new_key: MakeKey) -> None:
    created = new_key()
    for is_set in (False, True, False):
        changes.change(created.key.project, capture_hours=int(is_set), hashes_end_users=is_set)
        table.refresh()
        caller = table.authenticate(bearer(created.secret))
        assert (caller.captures, caller.hashes_end_users) == (is_set, is_set)


def test_headers_of_other_forms_are_refused(table: KeyTable, new_key: MakeKey) -> None:
    secret = new_key().secret
    table.refresh()
    for nothing in (None, "", b"", "Bearer", "Bearer ", b"bearer   "):
        assert refusal(table, nothing) is Refusal.MISSING, nothing
    for form in MALFORMED:
        assert refusal(table, form.format(secret, secret)) is Refusal.MALFORMED, form
    assert all(len(KeyRefused(reason).message) > 40 for reason in Refusal)


def test_a_key_is_known_while_its_pepper_is(new_key: MakeKey) -> None:
    created = new_key()
    newer = KeyTable({1: b"other", 2: b"the second pepper", 3: b"a third pepper"})
    other = KeyTable({3: b"a third pepper"})
    for each in (newer, other):
        each.refresh()
    assert newer.authenticate(bearer(created.secret)).key_id == created.key.pk
    assert refusal(other, bearer(created.secret)) is Refusal.UNKNOWN


def test_authentication_needs_no_query_and_one_of_the_known_forms(
    table: KeyTable, new_key: MakeKey, django_assert_num_queries: Any
) -> None:
    created = new_key()
    table.refresh()
    with django_assert_num_queries(0):
        table.authenticate(bearer(created.secret))
        assert refusal(table, bearer(new_secret())) is Refusal.UNKNOWN

    for scheme in ("Bearer", "bearer", "BEARER", "bEaReR", "Bearer ", " Bearer \t"):
        text = f"{scheme} {created.secret}"
        for form in (text, text.encode(), f"{text} ", f"{text}\t "):
            assert table.authenticate(form).key_id == created.key.pk, form


def test_a_key_is_valid_until_its_end(table: KeyTable, new_key: MakeKey, clock: FakeClock) -> None:
    created = new_key(expires_at=clock.moment(60))
    table.refresh()
    clock.now_s += 59
    assert table.authenticate(bearer(created.secret)).key_name == "laptop"
    clock.now_s += 1
    assert refusal(table, bearer(created.secret)) is Refusal.EXPIRED

    ends, lasts = new_key(expires_at=clock.moment(60)).key, new_key("lasts").key
    table.refresh()
    clock.now_s += 59
    assert table.is_valid(ends.pk) and table.is_valid(lasts.pk)
    clock.now_s += 1
    assert not table.is_valid(ends.pk)
    assert table.is_valid(lasts.pk)
    change_key(ends, expires_at=clock.moment(60))
    rotate_key(lasts, grace=timedelta(0))
    table.refresh()
    assert table.is_valid(ends.pk)
    assert not table.is_valid(lasts.pk)
    assert not table.is_valid(10**9)
