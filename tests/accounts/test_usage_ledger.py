"""The usage ledger of one web process. On a full or broken disk, the ledger loses no admitted
request."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.db import OperationalError
from usage_builders import NewLedger, Shelf, admission, die, serve, settlement

from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.ledger import NoRoomForUsage
from vinery_accounts.usage.recovery import recover_orphans
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
    ledger.admit(admission("running"))

    assert is_stored.wait(DEADLINE_S)
    ledger.stop()
    assert UsageRecord.objects.filter(outcome="ok").count() == 50
    assert UsageRecord.objects.get(outcome="interrupted").request_id == "running"
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


REAL_PWRITE = os.pwrite


def failing(*_: object) -> None:
    raise OSError(28, "No space left on device")


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", failing)


def only_allocated(fd: int, content: bytes, offset: int) -> int:
    """Write as far as the file's size, as on a full disk."""
    room = max(0, os.fstat(fd).st_size - offset)
    if room == 0:
        failing()
    return REAL_PWRITE(fd, content[:room], offset)


def test_on_a_disk_that_fails_requests_are_settled_or_counted_as_lost(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()
    ledger.admit(admission())
    fill_disk(monkeypatch)
    ledger.checkpoint([("r1", 1, 0, 0, 0)])
    ledger.settle(settlement())
    ledger.flush()
    assert new_ledger.shelf.outcomes == {"r1": Outcome.OK}
    assert ledger.num_lost == 0
    assert caplog.text.count("cannot write the usage journal") == 1

    monkeypatch.undo()
    ledger = new_ledger(max_spilled=2)
    for number in range(5):
        ledger.admit(admission(f"s{number}"))
    fill_disk(monkeypatch)
    for number in range(5):
        ledger.settle(settlement(f"s{number}"))
    ledger.flush()
    assert sorted(new_ledger.shelf.rows) == ["r1", "s0", "s1"]
    assert ledger.num_lost == 3


def test_what_could_not_be_written_is_interrupted_after_a_kill_and_what_was_refused_is_not(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger(max_journal_bytes=0)
    ledger.admit(admission("done"))
    with monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(NoRoomForUsage):
            ledger.admit(admission("refused"))
        ledger.settle(settlement("done"))
        new_ledger.shelf.num_failures_to_come = 1
        with pytest.raises(OperationalError):
            ledger.flush()
    ledger._rewrite()  # keeps the admission of a settlement that is in memory alone
    die(ledger)

    assert new_ledger.recover().outcomes == {"done": Outcome.INTERRUPTED}


def test_a_full_disk_stops_no_request_that_its_reserve_takes(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger(reserve_bytes=100_000)
    assert ledger.has_room
    monkeypatch.setattr(os, "posix_fallocate", failing)
    monkeypatch.setattr(os, "pwrite", only_allocated)
    admitted = []
    with pytest.raises(NoRoomForUsage):
        for number in range(10_000):
            ledger.admit(admission(f"r{number}"))
            admitted.append(f"r{number}")
            ledger.checkpoint([(each, 1, 0, 0, 0) for each in admitted])
    assert not ledger.has_room
    assert len(admitted) > 20
    for request_id in admitted:
        ledger.settle(settlement(request_id))
    assert ledger._spilled == []
    die(ledger)

    assert new_ledger.recover().outcomes == dict.fromkeys(admitted, Outcome.OK)


def test_requests_are_admitted_again_after_there_is_disk_space(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.usage.ledger._ALLOCATION_INTERVAL_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", failing)
        ledger = new_ledger()
        with pytest.raises(NoRoomForUsage):
            ledger.admit(admission())
    ledger.admit(admission())
    assert ledger.has_room


def test_a_full_disk_and_a_kill_lose_no_admitted_request(tmp_path: Path, shelf: Shelf) -> None:
    """The limit is a real limit on the size of files: the process cannot raise it."""
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "VINERY_HOME": str(tmp_path / "home")}
    process = subprocess.run(
        [sys.executable, "-m", "full_disk_process", str(tmp_path / "usage")],
        cwd=Path(__file__).parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    answered, running = process.stdout.split("\n")[:2]

    recover_orphans(tmp_path / "usage", shelf)

    by_outcome = dict.fromkeys(Outcome, 0) | Counter(shelf.outcomes.values())
    assert by_outcome[Outcome.OK] == int(answered) > 50
    assert by_outcome[Outcome.INTERRUPTED] == int(running) == 3
