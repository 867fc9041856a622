"""The usage ledger on a full or broken disk loses no request that it has admitted."""

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import OperationalError
from usage_builders import NewLedger, Shelf, admission, die, serve, settlement

from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.journal import Journal
from vinery_accounts.usage.ledger import NoRoomForUsage
from vinery_accounts.usage.recovery import read_losses, recover_orphans

LONG_AGO, LATER = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
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


def test_the_journal_is_completed_after_the_disk_is_repaired_without_what_was_refused(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger()
    ledger.admit(admission("done"))
    ledger.admit(admission("running"))
    fill_disk(monkeypatch)
    with pytest.raises(NoRoomForUsage):
        ledger.admit(admission("refused"))
    ledger.settle(settlement("done"))
    new_ledger.shelf.num_failures_to_come = 1
    with pytest.raises(OperationalError):
        ledger.flush()

    monkeypatch.undo()
    new_ledger.shelf.num_failures_to_come = 1
    with pytest.raises(OperationalError):
        ledger.flush()
    die(ledger)
    shelf = new_ledger.recover()

    assert shelf.outcomes == {"running": Outcome.INTERRUPTED, "done": Outcome.OK}
    assert list(read_losses(new_ledger.folder, LONG_AGO, LATER)) == []


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_kill_reports_settlements_that_could_neither_be_written_nor_stored(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    ledger = new_ledger(max_spilled=2)
    for number in range(5):
        ledger.admit(admission(f"r{number}"))
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", failing)
        for number in range(3):
            ledger.settle(settlement(f"r{number}"))
    if is_flushed:
        ledger.flush()
    die(ledger)

    shelf = new_ledger.recover()

    num_stored = 2 if is_flushed else 0
    outcomes = [Outcome.OK] * num_stored + [Outcome.INTERRUPTED] * (5 - num_stored)
    assert [shelf.outcomes[f"r{number}"] for number in range(5)] == outcomes
    [loss] = read_losses(new_ledger.folder, LONG_AGO, LATER)
    assert loss.num_requests == 3 - num_stored
    assert list(read_losses(new_ledger.folder, LONG_AGO, LONG_AGO)) == []


def test_a_full_disk_stops_no_request_that_its_reserve_or_the_database_takes(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, stored = (new_ledger(reserve_bytes=100_000) for _ in range(2))
    stored.flush()
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

    shelf = new_ledger.recover()

    assert shelf.outcomes == dict.fromkeys(admitted, Outcome.OK)

    for number in range(2000):
        serve(stored, f"s{number}")
        if number % 20 == 0:
            stored.flush()
    stored.flush()
    assert len(new_ledger.shelf.rows) == len(admitted) + 2000


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
    """The limit is a real one, of the size of files: the process cannot raise it."""
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
    assert list(read_losses(tmp_path / "usage", LONG_AGO, LATER)) == []
