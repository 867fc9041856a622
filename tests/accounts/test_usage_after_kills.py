"""Every admitted request gets exactly one usage record in any order of failures, and the roll-ups
are the sums of the records.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import consumes, rule
from usage_builders import NOON, DatabaseUnavailable, admission, settlement

from tests.examples import examples
from vinery_accounts.models import DayRollup, HourRollup, MinuteRollup, UsageRecord
from vinery_accounts.usage import ledger as ledger_module
from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.journal import Journal
from vinery_accounts.usage.ledger import NoRoomForUsage, UsageLedger
from vinery_accounts.usage.recovery import recover_orphans
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.upkeep import verify


class Ledger(stateful.RuleBasedStateMachine):
    """Two web processes, which are killed, with a database and a disk that fail at times."""

    running = stateful.Bundle("running")

    @stateful.initialize()
    def open_for_business(self) -> None:
        for table in (UsageRecord, MinuteRollup, HourRollup, DayRollup):
            table.objects.all().delete()
        self.directory = Path(tempfile.mkdtemp())
        self.num_requests = 0
        self.is_database_unavailable = False
        # The expected record: the output tokens of a settled request, or the
        # checkpoint of a running one.
        self.settled: dict[str, int] = {}
        self.checkpointed: dict[str, int] = {}
        self.processes = [self.new_process(), self.new_process()]

    def new_process(self) -> UsageLedger:
        bounds = {"max_journal_bytes": 2000, "reserve_bytes": 10_000}
        return UsageLedger(self.directory, store=self.store, store_dead=self.store, **bounds)

    def store(self, settlements: Sequence[Settlement]) -> None:
        if self.is_database_unavailable:
            raise DatabaseUnavailable
        store_settlements(settlements)

    @rule(target=running, process=st.integers(0, 1))
    def admit(self, process: int) -> tuple[UsageLedger, str]:
        self.num_requests += 1
        request_id = f"r{self.num_requests}"
        self.processes[process].admit(admission(request_id))
        self.checkpointed[request_id] = 0
        return self.processes[process], request_id

    @rule(request=running, num_tokens=st.integers(0, 1000))
    def checkpoint(self, request: tuple[UsageLedger, str], num_tokens: int) -> None:
        process, request_id = request
        if process in self.processes:
            process.checkpoint([(request_id, 1, 0, num_tokens, 0)])
            self.checkpointed[request_id] = num_tokens

    @rule(request=consumes(running), num_tokens=st.integers(0, 1000))
    def settle(self, request: tuple[UsageLedger, str], num_tokens: int) -> None:
        process, request_id = request
        if process in self.processes:
            process.settle(settlement(request_id, num_output_tokens=num_tokens))
            self.settled[request_id] = num_tokens

    @rule(request=consumes(running), num_tokens=st.integers(0, 1000))
    def settle_twice(self, request: tuple[UsageLedger, str], num_tokens: int) -> None:
        self.settle(request, num_tokens)
        if request[0] in self.processes:
            request[0].settle(settlement(request[1], num_output_tokens=num_tokens + 1))

    @rule(process=st.integers(0, 1))
    def flush(self, process: int) -> None:
        with suppress(DatabaseUnavailable):
            self.processes[process].flush()

    @rule(process=st.integers(0, 1))
    def rewrite(self, process: int) -> None:
        self.processes[process]._rewrite()

    @rule(is_unavailable=st.booleans())
    def turn_database(self, is_unavailable: bool) -> None:
        self.is_database_unavailable = is_unavailable

    @rule(request=consumes(running), num_tokens=st.integers(0, 1000))
    def go_on_with_a_full_disk(self, request: tuple[UsageLedger, str], num_tokens: int) -> None:
        """Continue with a full disk. What cannot be written waits in memory for the database."""
        self.is_database_unavailable = False
        with full_disk():
            with pytest.raises(NoRoomForUsage):
                self.processes[0].admit(admission("refused"))
            self.settle(request, num_tokens)
            self.flush_all()
        self.flush_all()

    def flush_all(self) -> None:
        self.flush(0)
        self.flush(1)

    @rule(process=st.integers(0, 1), torn=st.binary(max_size=40))
    def die(self, process: int, torn: bytes) -> None:
        """Kill the process, perhaps in the middle of a line."""
        journal = self.processes[process]._journal
        journal.close()
        with journal.path.open("r+b") as file:
            file.seek(journal.size_bytes)
            file.write(torn.replace(b"\n", b""))
        self.processes[process] = self.new_process()

    @rule(process=st.integers(0, 1))
    def stop(self, process: int) -> None:
        self.processes[process].stop()
        self.processes[process] = self.new_process()

    @rule()
    def recover(self) -> None:
        with suppress(DatabaseUnavailable):
            recover_orphans(self.directory, self.store)

    @stateful.invariant()
    def no_row_is_wrong(self) -> None:
        for request_id, outcome, num_tokens in self.rows():
            if outcome == Outcome.OK:
                assert self.settled[request_id] == num_tokens
            else:
                assert request_id not in self.settled
                assert self.checkpointed[request_id] == num_tokens

    def teardown(self) -> None:
        if not hasattr(self, "processes"):
            return
        self.is_database_unavailable = False
        for process in self.processes:
            process.stop()
        recover_orphans(self.directory, self.store)
        self.no_row_is_wrong()
        rows = [request_id for request_id, *_ in self.rows()]
        assert sorted(rows) == sorted(f"r{n + 1}" for n in range(self.num_requests))
        assert sum(outcome == Outcome.OK for _, outcome, _ in self.rows()) == len(self.settled)
        [checked] = verify(NOON, NOON + timedelta(minutes=1))
        assert (checked.num_rows, checked.differences) == (self.num_requests, ())
        assert list(self.directory.iterdir()) == []
        shutil.rmtree(self.directory)

    def rows(self) -> list[tuple[str, str, int]]:
        return list(UsageRecord.objects.values_list("request_id", "outcome", "num_output_tokens"))


@contextmanager
def full_disk() -> Iterator[None]:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with (
        mock.patch.object(Journal, "append", full),
        mock.patch.object(Journal, "replace", full),
        mock.patch.object(ledger_module.logger, "error"),
    ):
        yield


@pytest.mark.stores
@pytest.mark.django_db
def test_every_admitted_request_gets_exactly_one_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    stateful.run_state_machine_as_test(
        Ledger,
        settings=settings(
            max_examples=examples(60),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
