"""The hash chain of the audit log detects changed, removed and added entries."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isolation_tenants import rolled_back
from together import four_at_once

from tests.examples import examples
from tests.tables import table
from vinery_accounts.access import audit, changes
from vinery_accounts.access.audit import BEGINNING, Break, verify
from vinery_accounts.base.errors import AppendOnly
from vinery_accounts.models import AuditEntry, Organization

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


def forge(entry_number: int, /, **values: object) -> None:
    """Change an entry directly in the database."""
    columns = ", ".join(f"{name} = %s" for name in values)
    with connection.cursor() as cursor:
        change = f"UPDATE accounts_auditentry SET {columns} WHERE number = %s"
        cursor.execute(change, [*values.values(), entry_number])


def take_out(*numbers: int) -> None:
    with connection.cursor() as cursor:
        for number in numbers:
            cursor.execute("DELETE FROM accounts_auditentry WHERE number = %s", [number])


def test_entries_have_the_hash_of_the_entry_before(chain: list[AuditEntry], db: None) -> None:
    hashes = [BEGINNING, *(entry.hash for entry in chain)]

    assert [entry.previous_hash for entry in chain] == hashes[:-1]
    assert [entry.number for entry in chain] == [1, 2, 3, 4, 5]
    assert len(set(hashes)) == 6
    verdict = verify()
    assert (verdict.num_entries, verdict.newest_hash, verdict.broken) == (5, hashes[-1], None)

    entry = audit.record("change", Organization(pk=1, name="x"), after={"a\0": {"b\0": "c\0"}})

    assert entry.after == {"a": {"b": "c"}}


@table(
    "column, value",
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
    with rolled_back():
        forge(3, **{column: value})
        verdict = verify()

    assert (verdict.broken, verdict.number) == (Break.CHANGED, 3)
    assert verdict.newest_hash == chain[1].hash


def test_a_removed_entry_is_found_also_if_others_are_renumbered(chain: list[AuditEntry]) -> None:
    with rolled_back():
        take_out(2, 3)
        verdict = verify()
    assert (verdict.broken, verdict.number) == (Break.MISSING, 2)
    assert verdict.message == "Entries 2 to 3 are missing."

    with rolled_back():
        take_out(2)
        for number in (3, 4, 5):
            forge(number, number=number - 1)
        verdict = verify()
    assert (verdict.broken, verdict.number) == (Break.CHANGED, 2)

    # An entry before the first one is found, too.
    take_out(1)
    forge(2, number=0)
    assert verify().broken is Break.INSERTED


def test_a_replaced_entry_with_a_valid_hash_is_found(chain: list[AuditEntry]) -> None:
    replaced = chain[2]
    replaced.actor = "mallory"
    forge(3, actor="mallory", hash=audit.hash_of(replaced))

    verdict = verify()

    assert (verdict.broken, verdict.number) == (Break.INSERTED, 4)
    assert "does not follow entry 3" in verdict.message


def test_a_chain_without_its_end_is_found_only_with_a_saved_hash(chain: list[AuditEntry]) -> None:
    kept = verify().newest_hash
    assert verify(chain[2].hash).broken is None  # with later entries
    take_out(4, 5)

    assert verify().broken is None
    verdict = verify(kept)
    assert (verdict.broken, verdict.number) == (Break.CUT, 4)
    assert kept in verdict.message


def test_the_model_refuses_to_change_or_delete_entries(chain: list[AuditEntry]) -> None:
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
        with pytest.raises(AppendOnly, match="append-only"):
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(
    before=st.dictionaries(st.sampled_from("abc"), JSON), after=st.dictionaries(st.just("d"), JSON)
)
def test_any_entry_has_the_same_hash_when_it_is_read_again(
    db: None, before: dict[str, Any], after: dict[str, Any]
) -> None:
    with rolled_back():
        audit.record("change", Organization(pk=1, name="x"), before=before, after=after)
        assert verify().broken is None


@pytest.mark.django_db(transaction=True)
def test_concurrent_writers_do_not_fork_the_chain() -> None:
    rows = iter([Organization.objects.create(name=f"org {number}") for number in range(4)])

    def rename() -> list[str]:
        row = next(rows)
        return [changes.change(row, name=f"{row.name} {again}").name for again in range(7)]

    assert len(four_at_once(rename)) == 28
    verdict = verify()
    assert (verdict.num_entries, verdict.broken) == (28, None)
