"""The usage ledger of one web process."""

import logging
import threading
from collections.abc import Sequence

import pytest
from django.db import OperationalError
from usage_builders import NewLedger, admission, die, serve, settlement

from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.journal import Journal
from vinery_accounts.usage.store import store_settlements

DEADLINE_S = 60.0
MANY = [f"r{number}" for number in range(50)]


def test_settled_requests_wait_on_the_disk_until_a_flush_stores_them(new_ledger: NewLedger) -> None:
    ledger = new_ledger()
    ledger.admit(admission())
    ledger.flush()
    assert new_ledger.shelf.rows == {}
    ledger.settle(settlement())
    ledger.flush()
    assert new_ledger.shelf.rows == {"r1": settlement()}
    ledger = new_ledger()
    ledger.checkpoint([])
    assert ledger.backlog_bytes == 0

    ledger = new_ledger()
    new_ledger.shelf.rows.clear()
    new_ledger.shelf.num_failures_to_come = 3
    for number, request_id in enumerate(MANY):
        serve(ledger, request_id)
        if number % 20 == 0:
            with pytest.raises(OperationalError):
                ledger.flush()
    assert list(ledger._requests.entries()) == []
    assert ledger.backlog_bytes > 0
    assert ledger._spilled == []
    ledger.flush()
    assert len(new_ledger.shelf.rows) == 50
    assert ledger.backlog_bytes == 0


def test_a_journal_of_several_batches_has_a_bounded_size(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.usage.ledger.BATCH_BYTES", 700)
    ledger = new_ledger()
    serve(ledger, *MANY)
    ledger.flush()
    assert len(new_ledger.shelf.rows) == 50

    ledger = new_ledger(max_journal_bytes=4000)
    for number in range(100):
        serve(ledger, f"s{number}")
        ledger.flush()
    assert len(new_ledger.shelf.rows) == 150
    assert ledger._journal.size_bytes < 8000


def test_stopping_without_a_database_leaves_the_journal_to_the_next_process(
    new_ledger: NewLedger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()
    serve(ledger, "r1")
    new_ledger.shelf.num_failures_to_come = 1
    ledger.stop()
    assert "until the next start" in caplog.text
    assert new_ledger.recover().outcomes == {"r1": Outcome.OK}


def test_neither_open_requests_nor_a_backlog_are_copied_in_every_pass(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger(max_journal_bytes=1000)
    for request_id in MANY:
        ledger.admit(admission(request_id))
    rewrites = []
    replace = Journal.replace
    monkeypatch.setattr(Journal, "replace", lambda *args: rewrites.append(args) or replace(*args))
    for _ in range(5):
        ledger.flush()
        ledger.checkpoint([("r1", 1, 0, 0, 0)])
    assert len(rewrites) == 1

    ledger = new_ledger(max_journal_bytes=1000)
    for request_id in MANY:
        ledger.settle(settlement(request_id))
    new_ledger.shelf.num_failures_to_come = 1
    monkeypatch.setattr(Journal, "replace", lambda *args: pytest.fail("it was copied"))
    with pytest.raises(OperationalError):
        ledger.flush()
    assert new_ledger.shelf.rows == {}


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_the_thread_also_stores_records_of_dead_processes(new_ledger: NewLedger) -> None:
    dead = new_ledger()
    dead.admit(admission("orphan"))
    die(dead)
    stored, is_stored = set[str](), threading.Event()

    def watched(settlements: Sequence[Settlement]) -> None:
        store_settlements(settlements)
        stored.update(row.admission.request_id for row in settlements)
        if {"orphan", "fresh"} <= stored:
            is_stored.set()

    ledger = new_ledger(store=watched, interval_s=0.01)
    serve(ledger, "fresh")

    ledger.start()

    assert is_stored.wait(DEADLINE_S)
    ledger.admit(admission("running"))
    ledger.stop()
    assert set(UsageRecord.objects.values_list("request_id", "outcome")) == {
        ("orphan", "interrupted"),
        ("fresh", "ok"),
        ("running", "interrupted"),
    }


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_a_temporary_failure_of_the_database_loses_no_records(
    new_ledger: NewLedger, caplog: pytest.LogCaptureFixture
) -> None:
    num_attempts, is_stored = 0, threading.Event()

    def fails_three_times(settlements: Sequence[Settlement]) -> None:
        nonlocal num_attempts
        if not settlements:
            return
        num_attempts += 1
        if num_attempts <= 3:
            raise OperationalError("the database is unavailable")
        store_settlements(settlements)
        is_stored.set()

    ledger = new_ledger(store=fails_three_times, interval_s=0.01)
    ledger.start()
    serve(ledger, *MANY)

    assert is_stored.wait(DEADLINE_S)
    ledger.stop()
    assert UsageRecord.objects.filter(outcome="ok").count() == 50
    assert caplog.text.count("usage is not stored") == 3


def test_the_thread_starts_once_and_waits_longer_after_each_failure(
    new_ledger: NewLedger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()
    ledger.start()
    with pytest.raises(RuntimeError):
        ledger.start()
    ledger.stop()

    caplog.set_level(logging.CRITICAL)
    new_ledger.shelf.num_failures_to_come = 8
    ledger = new_ledger(interval_s=0.5)
    ledger.settle(settlement())
    delays = [0.5]
    for _ in range(9):
        delays.append(ledger._work(delays[-1]))
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 0.5]
