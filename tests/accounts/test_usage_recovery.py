"""Recovery of the journals of dead processes."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from together import four_at_once
from usage_builders import Shelf, admission, settlement

from vinery_accounts.models import UsageRecord
from vinery_accounts.usage import recovery
from vinery_accounts.usage.entries import Admission, Checkpoint, Outcome, Settlement, encode
from vinery_accounts.usage.journal import Journal, journals_in
from vinery_accounts.usage.ledger import UsageLedger
from vinery_accounts.usage.recovery import recover_orphans


class Killed(BaseException):
    """Simulates the end of the process at this point."""


def write(journal: Journal, *entries: Admission | Settlement) -> None:
    """The owner of the journal writes these lines, and dies."""
    for each in entries:
        journal.append(encode(each))
    journal.close()


def orphan_in(folder: Path) -> Path:
    """Return the journal of a dead process, with one settled and one running request."""
    journal = Journal.create(folder)
    write(journal, admission("done"), admission("running"), settlement("done"))
    return journal.path


@pytest.fixture
def orphan(tmp_path: Path) -> Path:
    return orphan_in(tmp_path)


BOTH = {"done": Outcome.OK, "running": Outcome.INTERRUPTED}


def test_recovery_returns_its_numbers_and_spares_the_living(orphan: Path, shelf: Shelf) -> None:
    living = UsageLedger(orphan.parent, store=shelf, store_dead=shelf)
    living.admit(admission())

    assert recover_orphans(orphan.parent, shelf) == 1
    assert shelf.outcomes == BOTH
    assert journals_in(orphan.parent) == [living._journal.path]

    assert recover_orphans(orphan.parent, shelf) == 0
    living.settle(settlement())
    living.stop()
    assert shelf.outcomes == {**BOTH, "r1": Outcome.OK}


def test_tokens_made_after_the_gateway_died_are_charged(orphan: Path, shelf: Shelf) -> None:
    file = orphan.parent / "77-1.lost"
    file.write_text('["running", 9, 4, 30]\n["running", 9, 0, 12]\n["stranger", 1, 0, 1]\n')
    recover_orphans(orphan.parent, shelf)
    row = shelf.rows["running"]
    assert (row.num_prompt_tokens, row.num_cached_tokens, row.num_output_tokens) == (9, 4, 42)
    assert row.is_exact
    assert file.exists()

    orphan = orphan_in(orphan.parent)
    shelf.rows.clear()
    with orphan.open("ab") as journal:
        journal.write(encode(Checkpoint((("running", 9, 0, 50, 20),))))
    (orphan.parent / "77-1.lost").write_text('["running", 9, 0, 12]\n')
    recover_orphans(orphan.parent, shelf)
    row = shelf.rows["running"]
    assert (row.num_prompt_tokens, row.num_output_tokens, row.num_reasoning_tokens) == (9, 12, 12)


def test_damaged_files_do_not_block_recovery(
    orphan: Path, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    with orphan.open("ab") as journal:
        journal.write(encode(settlement("running"))[:-9])
    (orphan.parent / "77-1.lost").write_text('["running", 9')
    (orphan.parent / "0-unreadable.jsonl").mkdir()

    recover_orphans(orphan.parent, shelf)

    assert shelf.outcomes == BOTH
    assert not shelf.rows["running"].is_exact
    assert "cannot recover the usage journal" in caplog.text


def test_a_journal_is_recovered_in_many_batches_and_if_it_could_not_be_removed(
    orphan: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "BATCH_BYTES", 10)
    recover_orphans(orphan.parent, shelf)
    assert shelf.outcomes == BOTH

    orphan = orphan_in(orphan.parent)
    shelf.rows.clear()

    def killed(journal: Journal) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", killed)
        with pytest.raises(Killed):
            recover_orphans(orphan.parent, shelf)
    recover_orphans(orphan.parent, shelf)
    assert shelf.outcomes == BOTH


@pytest.mark.parametrize("num_stores_survived", [0, 1])
@pytest.mark.parametrize("is_stored_before_death", [True, False])
def test_recovery_may_be_killed_while_it_stores(
    orphan: Path, shelf: Shelf, num_stores_survived: int, is_stored_before_death: bool
) -> None:
    num_stores = 0

    def killed_at_last(settlements: Sequence[Settlement]) -> None:
        nonlocal num_stores
        is_last = num_stores == num_stores_survived
        if is_stored_before_death or not is_last:
            shelf(settlements)
        if is_last:
            raise Killed
        num_stores += 1

    with pytest.raises(Killed):
        recover_orphans(orphan.parent, killed_at_last)
    recover_orphans(orphan.parent, shelf)

    assert shelf.outcomes == BOTH
    assert not orphan.exists()


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_concurrent_recoveries_store_every_record_once(tmp_path: Path) -> None:
    for number in range(12):
        done, running = f"done{number}", f"running{number}"
        write(Journal.create(tmp_path), admission(done), admission(running), settlement(done))

    found = four_at_once(lambda: [recover_orphans(tmp_path)])

    assert sum(found) == 12
    assert UsageRecord.objects.filter(outcome="ok").count() == 12
    assert UsageRecord.objects.filter(outcome="interrupted").count() == 12
    assert list(tmp_path.iterdir()) == []


def test_a_second_recovery_waits_for_the_first(
    orphan: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_storing, may_store, is_waiting = (threading.Event() for _ in range(3))
    is_ours = recovery._is_ours

    def note_who_waits(fd: int) -> bool:
        if not (found := is_ours(fd)):
            is_waiting.set()
        return found

    def store_slowly(settlements: Sequence[Settlement]) -> None:
        is_storing.set()
        may_store.wait(60)
        shelf(settlements)

    def recover_second() -> None:
        found.append(recover_orphans(orphan.parent, shelf))
        seen.append(dict(shelf.outcomes))

    found: list[int] = []
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(recovery, "_is_ours", note_who_waits)
    first = threading.Thread(target=recover_orphans, args=(orphan.parent, store_slowly))
    second = threading.Thread(target=recover_second)
    first.start()
    is_storing.wait(60)
    second.start()
    assert is_waiting.wait(60)
    may_store.set()
    for each in (first, second):
        each.join(60)

    assert (found, seen) == ([0], [BOTH])


def test_two_processes_do_not_recover_one_journal(
    orphan: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second process does not wait for the lock, so both recover at once.
    monkeypatch.setattr(recovery, "_MAX_TURN_S", 0.0)
    found_by_other, stored_by_other = [], Shelf()

    def recover_meanwhile(settlements: Sequence[Settlement]) -> None:
        found_by_other.append(recover_orphans(orphan.parent, stored_by_other))
        shelf(settlements)

    assert recover_orphans(orphan.parent, recover_meanwhile) == 1
    assert found_by_other == [0] * 2
    assert stored_by_other.rows == {}
    assert shelf.outcomes == BOTH
