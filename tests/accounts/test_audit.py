"""The audit log: complete, in order, without secrets, and not to be changed unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts import audit, changes
from accounts.actors import SYSTEM, Actor, acting_as, current_actor
from accounts.audit import BEGINNING, Break, verify
from accounts.errors import AppendOnly
from accounts.keys import NewKey, pause_key, resume_key, revoke_key, rotate_key
from accounts.middleware import ACTOR, actor_middleware
from accounts.models import (
    ApiKey,
    AuditEntry,
    Limit,
    Membership,
    ModelWeight,
    Organization,
    Project,
    Role,
    User,
)

pytestmark = pytest.mark.django_db

ROOT = Actor(1, "root", "192.0.2.1")


def told() -> list[str]:
    """The actions in the log, in order."""
    return list(AuditEntry.objects.order_by("number").values_list("action", flat=True))


def newest() -> AuditEntry:
    return AuditEntry.objects.latest("number")


def forge(entry_number: int, /, **values: object) -> None:
    """Change an entry behind the model's back, as someone with the database can."""
    columns = ", ".join(f"{name} = %s" for name in values)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE accounts_auditentry SET {columns} WHERE number = %s",
            [*values.values(), entry_number],
        )


def take_out(*numbers: int) -> None:
    with connection.cursor() as cursor:
        for number in numbers:
            cursor.execute("DELETE FROM accounts_auditentry WHERE number = %s", [number])


@pytest.fixture
def chain(db: None) -> list[AuditEntry]:
    """Five entries."""
    with acting_as(ROOT):
        organization = changes.add(Organization(name="acme"))
        for number in range(4):
            changes.change(organization, name=f"acme {number}")
    return list(AuditEntry.objects.order_by("number"))


# -- What is told


def test_an_entry_says_who_did_what_to_what_and_from_where(db: None) -> None:
    with acting_as(ROOT):
        organization = changes.add(Organization(name="acme"))
        changes.change(organization, name="Acme")

    entry = newest()
    assert (entry.actor_id, entry.actor, entry.ip) == (1, "root", "192.0.2.1")
    assert (entry.action, entry.target_kind, entry.target_id, entry.target) == (
        "organization.update",
        "organization",
        str(organization.pk),
        "Acme",
    )
    assert (entry.before, entry.after) == ({"name": "acme"}, {"name": "Acme"})
    assert entry.organization_id == organization.pk
    assert entry.number == 2


def test_the_whole_life_of_a_key_is_told(new_key: Callable[..., NewKey], alice: User) -> None:
    key = new_key().key
    start = len(told()) - 1
    changes.change(key, name="renamed", allowed_models=["small"])
    pause_key(key)
    pause_key(key)
    resume_key(key)
    resume_key(key)
    rotate_key(key, grace=timedelta(hours=1))
    revoke_key(key)
    revoke_key(key)

    assert told()[start:] == [
        "key.create",
        "key.update",
        "key.pause",
        "key.resume",
        "key.create",
        "key.rotate",
        "key.revoke",
    ]
    update = AuditEntry.objects.get(action="key.update")
    assert update.before == {"name": "laptop", "allowed_models": []}
    assert update.after == {"name": "renamed", "allowed_models": ["small"]}
    assert set(AuditEntry.objects.get(action="key.rotate").after) == {
        "expires_at",
        "replaced_by_id",
    }
    assert {entry.organization_id for entry in AuditEntry.objects.filter(target_kind="key")} == {
        key.project.organization_id
    }


def test_limits_weights_people_and_places_are_told(alice: User) -> None:
    acme = changes.add(Organization(name="acme"))
    project = changes.add(Project(organization=acme, name="search"))
    member = changes.set_role(alice, acme, Role.MEMBER)
    changes.set_role(alice, acme, Role.ADMIN)
    changes.set_role(alice, acme, Role.ADMIN)
    limit = changes.add(
        Limit(scope="project", scope_id=project.pk, metric="tokens", window="day", amount=5)
    )
    changes.change(limit, amount=6)
    changes.remove(limit)
    weight = changes.add(ModelWeight(model="tiny-chat", output=2.5))
    changes.change(weight, cached=0.1)
    changes.set_active(alice, False)
    changes.set_active(project, False)
    changes.set_active(project, True)
    changes.remove(member)

    assert told() == [
        "organization.create",
        "project.create",
        "membership.create",
        "membership.update",
        "limit.create",
        "limit.update",
        "limit.delete",
        "weight.create",
        "weight.update",
        "user.deactivate",
        "project.deactivate",
        "project.activate",
        "membership.delete",
    ]
    assert verify().broken is None
    in_acme = AuditEntry.objects.filter(organization_id=acme.pk)
    assert in_acme.count() == len(told()) - 2  # the weight is the platform's


def test_what_goes_with_a_deleted_user_is_told_too(
    new_key: Callable[..., NewKey], alice: User
) -> None:
    key = new_key().key
    changes.remove(alice)

    deleted = AuditEntry.objects.filter(action__endswith=".delete").order_by("number")
    assert [entry.action for entry in deleted] == [
        "key.delete",
        "membership.delete",
        "user.delete",
    ]
    assert deleted[0].target_id == str(key.pk)
    assert not ApiKey.objects.exists()


def test_no_secret_is_told(new_key: Callable[..., NewKey], alice: User) -> None:
    new = new_key()
    changes.set_password(alice, "correct-horse-7")
    rotated = rotate_key(new.key, grace=timedelta(0))
    person = changes.add_user("carol", password="correct-horse-8")
    person.refresh_from_db()
    changes.remove(alice)

    log = "\n".join(f"{row}" for row in AuditEntry.objects.values_list("before", "after", "target"))
    secrets = {new.secret, new.key.digest, rotated.secret, rotated.key.digest}
    for secret in secrets | {alice.password, person.password, "correct-horse"}:
        assert secret not in log
    assert "digest" not in log
    assert "user.password" in told()


def test_a_change_that_changes_nothing_is_not_told(alice: User) -> None:
    acme = changes.add(Organization(name="acme"))
    stamp = acme.updated_at
    changes.change(acme, name="acme", is_active=True)

    acme.refresh_from_db()
    assert told() == ["organization.create"]
    assert acme.updated_at == stamp


def test_every_change_moves_the_stamp(new_key: Callable[..., NewKey]) -> None:
    key = new_key().key
    limit = changes.add(
        Limit(scope="key", scope_id=key.pk, metric="requests", window="day", amount=1)
    )
    for row, values in ((key, {"name": "b"}), (limit, {"amount": 2})):
        row.refresh_from_db()
        stamp = row.updated_at
        changes.change(row, **values)
        row.refresh_from_db()
        assert row.updated_at > stamp


def test_a_change_that_is_undone_leaves_no_entry(alice: User) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        changes.set_active(alice, False)
        raise RuntimeError
    assert told() == []

    changes.set_active(alice, False)
    assert verify().num_entries == 1


def test_values_that_a_row_cannot_have_change_nothing_and_tell_nothing(alice: User) -> None:
    limit = changes.add(
        Limit(scope="user", scope_id=alice.pk, metric="tokens", window="day", amount=1)
    )
    with pytest.raises(ValidationError):
        changes.change(limit, amount=0)
    with pytest.raises(ValidationError, match="There is no project 99"):
        changes.add(Limit(scope="project", scope_id=99, metric="tokens", window="day", amount=1))
    limit.refresh_from_db()
    assert limit.amount == 1
    assert told() == ["limit.create"]


def test_an_organisation_keeps_an_owner_and_the_platform_an_administrator(
    alice: User, bob: User
) -> None:
    acme = changes.add(Organization(name="acme"))
    first = changes.set_role(alice, acme, Role.OWNER)
    with pytest.raises(ValidationError, match="alice is the last owner of acme"):
        changes.set_role(alice, acme, Role.ADMIN)
    with pytest.raises(ValidationError, match="last owner"):
        changes.remove(first)
    changes.set_role(bob, acme, Role.OWNER)
    changes.remove(Membership.objects.get(pk=first.pk))

    root = User.objects.create_superuser("root")
    with pytest.raises(ValidationError, match="root is the last administrator"):
        changes.set_active(root, False)
    User.objects.create_superuser("second")
    changes.set_active(User.objects.get(pk=root.pk), False)


# -- Who acts


def test_nobody_in_particular_is_the_system(alice: User) -> None:
    assert current_actor() is SYSTEM
    changes.set_active(alice, False)
    assert newest().actor == "system"


def test_a_request_acts_for_its_user_from_its_address(alice: User) -> None:
    request = HttpRequest()
    request.META["REMOTE_ADDR"] = "::ffff:192.0.2.7"
    seen: list[Actor] = []

    def view(_: HttpRequest) -> HttpResponse:
        seen.append(current_actor())
        return HttpResponse()

    answer = actor_middleware(view)
    answer(request)
    request.user = alice
    answer(request)
    setattr(request, ACTOR, Actor(3, "bob, key laptop"))
    answer(request)
    request.META["REMOTE_ADDR"] = ""
    del request.__dict__[ACTOR]
    answer(request)

    assert seen == [
        Actor(None, "anonymous", "192.0.2.7"),
        Actor(alice.pk, "alice", "192.0.2.7"),
        Actor(3, "bob, key laptop"),
        Actor(alice.pk, "alice", None),
    ]
    assert current_actor() is SYSTEM


async def test_an_asynchronous_request_acts_for_its_user() -> None:
    async def view(_: HttpRequest) -> HttpResponse:
        assert current_actor().name == "anonymous"
        return HttpResponse()

    assert (await actor_middleware(view)(HttpRequest())).status_code == 200


# -- The chain


def test_entries_are_chained_from_a_beginning(chain: list[AuditEntry]) -> None:
    hashes = [BEGINNING, *(entry.hash for entry in chain)]

    assert [entry.previous_hash for entry in chain] == hashes[:-1]
    assert [entry.number for entry in chain] == [1, 2, 3, 4, 5]
    assert len(set(hashes)) == 6
    verdict = verify()
    assert (verdict.num_entries, verdict.newest_hash, verdict.broken) == (5, hashes[-1], None)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor", "mallory"),
        ("actor_id", 99),
        ("ip", "203.0.113.9"),
        ("action", "organization.delete"),
        ("target", "other"),
        ("target_id", "77"),
        ("target_kind", "key"),
        ("organization_id", None),
        ("before", '{"name": "forged"}'),
        ("after", "null"),
        ("created_at", datetime(2020, 1, 1, tzinfo=UTC)),
        ("previous_hash", "f" * 64),
        ("hash", "f" * 64),
    ],
)
def test_a_changed_entry_is_found(chain: list[AuditEntry], column: str, value: object) -> None:
    forge(3, **{column: value})

    verdict = verify()

    assert (verdict.broken, verdict.number) == (Break.CHANGED, 3)
    assert verdict.newest_hash == chain[1].hash


def test_an_entry_that_was_taken_out_is_found(chain: list[AuditEntry]) -> None:
    take_out(2, 3)
    verdict = verify()
    assert (verdict.broken, verdict.number) == (Break.MISSING, 2)
    assert verdict.message == "Entries 2 to 3 are missing."


def test_an_entry_that_was_taken_out_and_its_number_given_away_is_found(
    chain: list[AuditEntry],
) -> None:
    take_out(2)
    for number in (3, 4, 5):
        forge(number, number=number - 1)
    verdict = verify()
    assert (verdict.broken, verdict.number) == (Break.CHANGED, 2)


def test_an_entry_that_was_put_in_with_a_hash_of_its_own_is_found(
    chain: list[AuditEntry],
) -> None:
    replaced = chain[2]
    replaced.actor = "mallory"
    forge(3, actor="mallory", hash=audit.hash_of(replaced))

    verdict = verify()

    assert (verdict.broken, verdict.number) == (Break.INSERTED, 4)
    assert "does not follow entry 3" in verdict.message


def test_an_entry_before_the_first_is_found(chain: list[AuditEntry]) -> None:
    take_out(1)
    forge(2, number=0)
    assert verify().broken is Break.INSERTED


def test_a_chain_without_its_end_looks_whole_unless_its_end_is_known(
    chain: list[AuditEntry],
) -> None:
    kept = verify().newest_hash
    take_out(4, 5)

    assert verify().broken is None
    verdict = verify(kept)
    assert (verdict.broken, verdict.number) == (Break.CUT, 4)
    assert kept in verdict.message


def test_a_chain_that_has_grown_still_has_the_entry_that_was_the_newest(
    chain: list[AuditEntry],
) -> None:
    assert verify(chain[2].hash).broken is None


def test_the_model_lets_nobody_change_or_delete_entries(chain: list[AuditEntry]) -> None:
    entry = chain[0]
    ways: list[Callable[[], Any]] = [
        entry.save,
        entry.delete,
        lambda: entry.save(update_fields=["actor"]),
        lambda: AuditEntry.objects.filter(pk=entry.pk).update(actor="mallory"),
        lambda: AuditEntry.objects.all().delete(),
        lambda: AuditEntry.objects.bulk_update([entry], ["actor"]),
        lambda: AuditEntry.objects.bulk_create([AuditEntry()]),
    ]
    entry.actor = "mallory"
    for way in ways:
        with pytest.raises(AppendOnly, match="only added to"):
            way()
    assert verify() == audit.Verdict(5, chain[-1].hash)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    before=st.dictionaries(st.sampled_from("abc"), JSON), after=st.dictionaries(st.just("d"), JSON)
)
def test_whatever_is_told_gives_the_same_hash_when_it_is_read_again(
    db: None, before: dict[str, Any], after: dict[str, Any]
) -> None:
    with transaction.atomic():
        audit.record("change", Organization(pk=1, name="x"), before=before, after=after)
        assert verify().broken is None
        transaction.set_rollback(True)


def test_no_database_is_asked_to_store_a_nul(db: None) -> None:
    entry = audit.record("change", Organization(pk=1, name="x"), after={"a\0": {"b\0": "c\0"}})

    assert entry.after == {"a": {"b": "c"}}


@pytest.fixture
def threads() -> Iterator[Callable[[Callable[[int], None], int], list[BaseException]]]:
    """Runs a function in many threads at once; returns what they raised."""

    def run(work: Callable[[int], None], num_threads: int) -> list[BaseException]:
        errors: list[BaseException] = []

        def one(number: int) -> None:
            try:
                work(number)
            except BaseException as error:
                errors.append(error)
            finally:
                connection.close()

        workers = [threading.Thread(target=one, args=[n]) for n in range(num_threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return errors

    yield run


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_do_not_fork_the_chain(threads: Any) -> None:
    rows = [Organization.objects.create(name=f"org {number}") for number in range(6)]

    def rename(number: int) -> None:
        for again in range(5):
            changes.change(rows[number], name=f"org {number} {again}")

    assert threads(rename, len(rows)) == []
    verdict = verify()
    assert (verdict.num_entries, verdict.broken) == (30, None)


# -- Searching


def test_the_log_is_searched_by_who_what_and_where(chain: list[AuditEntry]) -> None:
    def found(text: str) -> int:
        return audit.search(AuditEntry.objects.all(), text).count()

    assert found("root") == found("ORGANIZATION.") == found("192.0.2.1") == 5
    assert found("acme 2") == 1
    assert found("create") == 1
    assert found("192.0.2.2") == found("mallory") == 0
